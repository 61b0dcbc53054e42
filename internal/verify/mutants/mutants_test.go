package main

import (
	"errors"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// A mutant whose text has changed would survive, or be detected for another reason. This test
// finds such mutants in every run of the tests.
func TestMutants_areUpToDate(t *testing.T) {
	names := map[string]bool{}
	for _, m := range all() {
		t.Run(m.name, func(t *testing.T) {
			require.Regexp(t, "^mutant_[a-z_]+$", m.name)
			require.False(t, names[m.name], "two mutants have this name")
			names[m.name] = true
			require.NotEmpty(t, m.does)
			require.NotEmpty(t, m.hunks)
			changed, err := m.apply(root)
			require.NoError(t, err)
			for file, text := range changed {
				require.False(t, strings.HasSuffix(file, "_test.go"), "a mutant changes the library, not its tests")
				if strings.HasSuffix(file, ".go") {
					_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
					require.NoError(t, err)
				}
			}
			requireTest(t, m.pkg, m.test)
		})
	}
}

// requireTest asserts that the folder has the test. For a subtest, it checks only the top-level
// test. A run of the mutant checks the rest.
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
	rules := append(upTo(24), 27, 29) // 25, 26 and 28 are not the engine's
	broken := map[int]bool{}
	for _, m := range all() {
		require.Contains(t, rules, m.rule)
		broken[m.rule] = true
	}
	require.Len(t, broken, len(rules))
}

// upTo returns the numbers from 1 to n.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

// The table in guard/RULES.md names a file and a test for each rule. A mutant must break the rule
// in that file and be detected by that test.
func TestMutants_agreeWithTheTableOfRules(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, "guard/RULES.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| (\\d+) \\| .* \\| `(.+)` \\| `(.+)` \\|$").FindAllStringSubmatch(string(table), -1)
	rules := map[int]bool{}
	for _, m := range all() {
		rules[m.rule] = true
	}
	require.Len(t, rows, len(rules))
	for i, rule := range slices.Sorted(maps.Keys(rules)) {
		row := rows[i]
		require.Equal(t, strconv.Itoa(rule), row[1])
		require.True(t, slices.ContainsFunc(all(), func(m mutant) bool {
			return strconv.Itoa(m.rule) == row[1] && m.test == row[3] &&
				slices.ContainsFunc(m.hunks, func(h hunk) bool { return h.file == row[2] })
		}), "no mutant breaks rule %s in %s and is found by %s", row[1], row[2], row[3])
	}
}

func TestChoose_refusesAnUnknownMutant(t *testing.T) {
	some, err := choose([]string{"mutant_no_clean_up"})
	require.NoError(t, err)
	require.Len(t, some, 1)
	every, err := choose(nil)
	require.NoError(t, err)
	require.Len(t, every, len(all()))
	_, err = choose([]string{"mutant_of_nothing"})
	require.ErrorContains(t, err, "mutant_of_nothing")
}

func TestApply_refusesATextThatDoesNotOccurOnce(t *testing.T) {
	for _, found := range []string{"no such text", "func "} {
		_, err := mutant{name: "stale", hunks: []hunk{{"guard/close.go", found, ""}}}.apply(root)
		require.ErrorContains(t, err, "stale: guard/close.go: the text to replace occurs")
	}
}

func TestDetected_isByTheTestItself(t *testing.T) {
	failed := errors.New("exit status 1")
	require.NoError(t, detected("TestA", "=== RUN   TestA\n--- FAIL: TestA (0.01s)\nFAIL\n", failed))
	require.NoError(t, detected("TestA/b", "--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b (0.01s)\nFAIL\n", failed))
	require.NoError(t, detected("TestA", "=== RUN   TestA\npanic: in a goroutine\n", failed), "a crash prints no FAIL line")
	require.ErrorContains(t, detected("TestA", "--- PASS: TestA (0.01s)\nPASS\n", nil), "survived")
	require.ErrorContains(t, detected("TestA", "--- FAIL: TestA (60s)\npanic: test timed out after 1m0s\n", failed), "did not end")
	require.ErrorContains(t, detected("TestA/b", "--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/c (0.01s)\nFAIL\n", failed), "something else")
	require.ErrorContains(t, detected("TestA", "--- PASS: TestA (0.01s)\nPASS\ngoleak: found unexpected goroutines\n", failed), "something else")
}

func TestOnly_matchesOneTest(t *testing.T) {
	require.Equal(t, "^TestA$", only("TestA"))
	require.Equal(t, `^TestA$/^a_\(b\)$`, only("TestA/a_(b)"))
}

// This runs the three quickest mutants, and then mutants for which a run must fail. proof mutants
// runs all of them.
func TestLab_reportsWhichMutantsAreCaught(t *testing.T) {
	l, err := newLab(t.Context())
	require.NoError(t, err)
	t.Cleanup(l.close)
	chosen, err := choose([]string{"mutant_no_clean_up"})
	require.NoError(t, err)
	var table strings.Builder
	require.NoError(t, report(t.Context(), &table, l, chosen), table.String())
	require.Contains(t, table.String(), "1 of 1 mutants, of 1 rules, were caught")
	t.Log(table.String())

	for wrong, m := range map[string]mutant{
		"it survived":         {hunks: []hunk{{"guard/storelease.go", "minMargin = 20 ", "minMargin = 20 * 1 "}}, test: "TestRelease_twiceDoesNothing"},
		"it does not compile": {hunks: []hunk{{"guard/storelease.go", "minMargin = 20 ", "minMargin = nothing "}}, test: "TestRelease_twiceDoesNothing"},
		"there is no test":    {hunks: []hunk{{"guard/storelease.go", "minMargin = 20 ", "minMargin = 0 "}}, test: "TestRelease_thatDoesNotExist"},
	} {
		m.name, m.pkg = "mutant_of_a_test", "guard"
		table.Reset()
		err := report(t.Context(), &table, l, []mutant{m})
		require.ErrorContains(t, err, "mutant_of_a_test: ")
		require.ErrorContains(t, err, wrong)
		require.Contains(t, table.String(), "0 of 1 mutants")
	}
}
