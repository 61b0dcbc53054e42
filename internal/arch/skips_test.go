package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	longName   = regexp.MustCompile(`^Test(Long|Weekly)_`)
	nearlyLong = regexp.MustCompile(`^Test(Long|Weekly)`)
)

// Only package leftout skips tests, so that CI can require all of them. `make test` leaves out the
// tests whose names begin with TestLong_, which `make check` runs, and TestWeekly_, which only the
// weekly run has. A short run (go test -short) leaves out the same ones, so each of them begins
// with leftout.IfShort or redistest.Long.
func TestSkips_areInOnePackage(t *testing.T) {
	long := 0
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if !strings.HasPrefix(path, "internal/testkit/leftout/") {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch called(call) {
				case "Skip", "Skipf", "SkipNow":
					t.Errorf("%s skips a test by itself, and not by package leftout", path)
				}
				return true
			})
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			named := longName.MatchString(f.Name.Name)
			require.Equal(t, named, beginsWithIfShort(f), "%s: only tests named TestLong_… or TestWeekly_… begin with leftout.IfShort: %s", path, f.Name)
			require.True(t, named || !nearlyLong.MatchString(f.Name.Name), "%s: %s", path, f.Name)
			if named {
				long++
			}
		}
	}
	require.Positive(t, long)
}

// goFiles are all Go files below the top, those of nested modules among them.
func goFiles(t *testing.T) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && !strings.Contains(path, "testdata/") {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

func beginsWithIfShort(f *ast.FuncDecl) bool {
	if len(f.Body.List) == 0 {
		return false
	}
	first, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := first.X.(*ast.CallExpr)
	return ok && (called(call) == "IfShort" || called(call) == "Long")
}

// called returns the name of the function or method that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}
