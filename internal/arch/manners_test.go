package arch_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// logs are the packages that log, as their users ask for it: logging has a hook that does, and
// asynq's schedulers a logger for what has no caller to return an error to. A Guard without any
// hook logs what only an operator can fix (guard/warn.go).
var logs = []string{"/guard", "/logging", "/middleware/asynq/scheduler"}

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

// A backend's author reads what a claim asks for, and what an answer says, in one sitting.
func TestManners_aClaimHasTenFieldsAndAnAnswerTwelve(t *testing.T) {
	require.LessOrEqual(t, reflect.TypeFor[driver.Claim]().NumField(), 10)
	require.LessOrEqual(t, reflect.TypeFor[driver.Answer]().NumField(), 12)
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

// requireNoGlobal asserts that users can set none of the variables, but for errors, which are to
// be compared with.
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
	for _, p := range listAll(t) {
		at := strings.TrimPrefix(p.ImportPath, module)
		if within(at, "/guard") || within(at, "/backend") || within(at, "/middleware") || within(at, "/tracing") {
			parts = append(parts, part{p, at})
		}
	}
	require.NotEmpty(t, parts)
	return parts
}

// comment matches a line that is only a comment, in the languages of this repository.
var comment = map[string]*regexp.Regexp{
	".go":   regexp.MustCompile(`^\s*//[^go:]|^.*\s//\s`),
	".lua":  regexp.MustCompile(`^\s*--|^.*\s--\s`),
	".pml":  regexp.MustCompile(`^\s*(/\*|\*)`),
	".sh":   regexp.MustCompile(`^\s*#`),
	".yml":  regexp.MustCompile(`^\s*#`),
	".yaml": regexp.MustCompile(`^\s*#`),
	"":      regexp.MustCompile(`^\s*#`), // Makefile, .ci/run
}

// A comment that does not fit a window is not read to its end. A tab counts as four columns.
func TestManners_noCommentExtendsBeyondColumn100(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "ls-files").Output()
	require.NoError(t, err)
	for _, name := range strings.Fields(string(out)) {
		is := comment[filepath.Ext(name)]
		if is == nil || strings.Contains(name, "testdata/") || name == "LICENSE" {
			continue
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		}
		require.NoError(t, err)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
			if utf8.RuneCountInString(line) > 100 && is.MatchString(line) && !strings.Contains(line, "://") {
				t.Errorf("%s:%d: %s", name, number, line)
			}
		}
	}
}
