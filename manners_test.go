package onerun_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logs are the packages that log, as their users ask for it: tracing has a hook that does, and asynq's middleware a logger for tasks that it
// could not put back.
var logs = []string{"/tracing", "/middleware/asynq"}

func TestManners_noPartLogs(t *testing.T) {
	for _, p := range parts(t) {
		if slices.Contains(logs, p.at) {
			continue
		}
		for _, path := range p.Imports {
			require.False(t, within(path, "log"), "%s imports %s", p.at, path)
		}
	}
}

func TestManners_noPartHasAnInitOrAGlobalToSet(t *testing.T) {
	for _, p := range parts(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					require.False(t, d.Recv == nil && d.Name.Name == "init", "%s has an init in %s", p.at, name)
				case *ast.GenDecl:
					if !strings.Contains(p.at, "/internal") { // which users cannot reach
						requireNoGlobal(t, p.at, d)
					}
				}
			}
		}
	}
}

// requireNoGlobal asserts that users can set none of the variables, but for errors, which are to be compared with.
func requireNoGlobal(t *testing.T, at string, d *ast.GenDecl) {
	t.Helper()
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || d.Tok != token.VAR {
			continue
		}
		for _, name := range v.Names {
			require.False(t, name.IsExported() && !strings.HasPrefix(name.Name, "Err"), "%s has a global %s", at, name.Name)
		}
	}
}

// A part is a package of the library.
type part struct {
	listed
	at string
}

// parts returns the packages that users import, and those that they are made of.
func parts(t *testing.T) (parts []part) {
	t.Helper()
	for _, p := range list(t, "./...") {
		at := strings.TrimPrefix(p.ImportPath, module)
		if within(at, "/guard") || within(at, "/backend") || within(at, "/middleware") || within(at, "/tracing") {
			parts = append(parts, part{p, at})
		}
	}
	require.NotEmpty(t, parts)
	return parts
}
