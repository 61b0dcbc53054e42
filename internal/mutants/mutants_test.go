package main

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// A mutant that no longer breaks what it says would survive, or be found out for something else. This is to notice it in every run.
func TestMutants_areUpToDate(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all() {
		t.Run(m.name, func(t *testing.T) {
			require.Regexp(t, "^mutant_[a-z_]+$", m.name)
			require.False(t, names[m.name], "two have the name")
			names[m.name] = true
			require.NotEmpty(t, m.does)
			require.NotEmpty(t, m.hunks)
			changed, err := m.apply(root)
			require.NoError(t, err)
			for file, text := range changed {
				require.False(t, strings.HasSuffix(file, "_test.go"), "what is broken is the library")
				if strings.HasSuffix(file, ".go") {
					_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
					require.NoError(t, err)
				}
			}
			requireTest(t, m.pkg, m.test)
		})
	}
}

// requireTest asserts that there is the test in the folder. Of a subtest it sees the test that it is of; the rest shows when it is run.
func requireTest(t *testing.T, pkg, test string) {
	t.Helper()
	name, _, _ := strings.Cut(test, "/")
	declared := regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`)
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if declared.Match(source) {
			return
		}
	}
	require.Failf(t, "no such test", "%s is not in %s", name, pkg)
}

func TestMutants_breakEachRule(t *testing.T) {
	const rules = 22 // of section 4
	broken := map[int]bool{}
	for _, m := range all() {
		require.GreaterOrEqual(t, m.rule, 1)
		require.LessOrEqual(t, m.rule, rules)
		broken[m.rule] = true
	}
	require.Len(t, broken, rules)
}

func TestChoose_refusesAMutantThatThereIsNot(t *testing.T) {
	some, err := choose([]string{"mutant_no_clean_up"})
	require.NoError(t, err)
	require.Len(t, some, 1)
	every, err := choose(nil)
	require.NoError(t, err)
	require.Len(t, every, len(all()))
	_, err = choose([]string{"mutant_of_nothing"})
	require.ErrorContains(t, err, "mutant_of_nothing")
}

func TestApply_refusesATextThatIsNotThereOnce(t *testing.T) {
	for _, found := range []string{"no such text", "func "} {
		_, err := mutant{name: "stale", hunks: []hunk{{"guard/close.go", found, ""}}}.apply(root)
		require.ErrorContains(t, err, "stale: guard/close.go: what it changes is there")
	}
}

func TestFoundOut_isByTheTestItself(t *testing.T) {
	failed := errors.New("exit status 1")
	require.NoError(t, foundOut("TestA", "=== RUN   TestA\n--- FAIL: TestA (0.01s)\nFAIL\n", failed))
	require.NoError(t, foundOut("TestA/b", "--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b (0.01s)\nFAIL\n", failed))
	require.NoError(t, foundOut("TestA", "=== RUN   TestA\npanic: in a goroutine\n", failed), "which has no line of its own")
	require.ErrorContains(t, foundOut("TestA", "--- PASS: TestA (0.01s)\nPASS\n", nil), "survived")
	require.ErrorContains(t, foundOut("TestA", "--- FAIL: TestA (60s)\npanic: test timed out after 1m0s\n", failed), "did not end")
	require.ErrorContains(t, foundOut("TestA/b", "--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/c (0.01s)\nFAIL\n", failed), "something else")
	require.ErrorContains(t, foundOut("TestA", "--- PASS: TestA (0.01s)\nPASS\ngoleak: found unexpected goroutines\n", failed), "something else")
}

func TestOnly_fitsOneTest(t *testing.T) {
	require.Equal(t, "^TestA$", only("TestA"))
	require.Equal(t, `^TestA$/^a_\(b\)$`, only("TestA/a_(b)"))
}

// The three that are the quickest, and what a run has to fail for. make mutants runs all.
func TestLab_findsOutWhichMutantsAreCaught(t *testing.T) {
	l, err := newLab(t.Context())
	require.NoError(t, err)
	t.Cleanup(l.close)
	chosen, err := choose([]string{"mutant_validity_from_the_reply", "mutant_no_clean_up", "mutant_same_fence_handed_on"})
	require.NoError(t, err)
	var table strings.Builder
	require.NoError(t, report(t.Context(), &table, l, chosen), table.String())
	require.Contains(t, table.String(), "3 of 3 mutants, of 3 rules, were caught")
	t.Log(table.String())

	for wrong, m := range map[string]mutant{
		"it survived":         {hunks: []hunk{{"guard/hold.go", "minMargin = 20 ", "minMargin = 20 * 1 "}}, test: "TestRelease_twiceIsANoOp"},
		"it does not compile": {hunks: []hunk{{"guard/hold.go", "minMargin = 20 ", "minMargin = nothing "}}, test: "TestRelease_twiceIsANoOp"},
		"there is no test":    {hunks: []hunk{{"guard/hold.go", "minMargin = 20 ", "minMargin = 0 "}}, test: "TestRelease_thatThereIsNot"},
	} {
		m.name, m.pkg = "mutant_of_a_test", "guard"
		table.Reset()
		err := report(t.Context(), &table, l, []mutant{m})
		require.ErrorContains(t, err, "mutant_of_a_test: ")
		require.ErrorContains(t, err, wrong)
		require.Contains(t, table.String(), "0 of 1 mutants")
	}
}
