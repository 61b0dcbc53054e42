package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	flowTitle = regexp.MustCompile(`^(A .*):$`)
	flowStep  = regexp.MustCompile("^(\\d+)\\. `([a-z/]+\\.go)` `((?:\\w+\\.)?(\\w+))`: (.*)$")
)

// docs/development.md lists the functions that a call goes through. Each exists in the file that is
// named, and one of those above it in the list calls it, unless "(by …)" says how it is reached.
func TestFlow_isAsTheDocsSay(t *testing.T) {
	checkFlows(t, "## What a call does\n", "guard", 4)
	checkFlows(t, "## What a request with an Idempotency-Key does\n", "middleware", 2)
}

// checkFlows checks the lists of a section, whose files are in a folder. want is how many they are.
func checkFlows(t *testing.T, title, folder string, want int) {
	t.Helper()
	page, err := os.ReadFile("docs/development.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), title)
	section, _, _ = strings.Cut(section, "\n## ")
	flows, called := 0, map[string]bool{}
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if flowTitle.MatchString(line) {
			flows++
			called = nil
			continue
		}
		step := flowStep.FindStringSubmatch(line)
		if step == nil {
			require.NotRegexp(t, `^\d+\. `, line, "a step that the test cannot read")
			continue
		}
		file, function, name, text := step[2], step[3], step[4], step[5]
		calls, ok := callsOf(t, filepath.Join(folder, file), function)
		require.True(t, ok, "%s/%s has no %s", folder, file, function)
		if called != nil && !strings.Contains(text, "(by ") {
			require.True(t, called[name], "no function above calls %s", function)
		}
		if called == nil {
			called = map[string]bool{}
		}
		for c := range calls {
			called[c] = true
		}
	}
	require.Equal(t, want, flows)
}

// callsOf returns the names of the functions that a function of the file calls or passes on.
func callsOf(t *testing.T, file, function string) (calls map[string]bool, ok bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	for _, d := range parsed.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || qualified(f) != function {
			continue
		}
		calls = map[string]bool{}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is {
				calls[id.Name] = true
			}
			return true
		})
		return calls, true
	}
	return nil, false
}

// qualified returns the name of a function, after that of its receiver.
func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, is := receiver.(*ast.StarExpr); is {
		receiver = star.X
	}
	if generic, is := receiver.(*ast.IndexExpr); is {
		receiver = generic.X
	}
	return receiver.(*ast.Ident).Name + "." + f.Name.Name
}
