package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A listed is what go list says of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		GoVersion string
		Main      bool
	}
}

// checkTypes checks the types in packages of a module, which is in the folder. It reads sources, so
// that no dependency is compiled. The arguments are those of go list, and env has variables for it.
func checkTypes(ctx context.Context, folder string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"}, args...)...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	list, err := cmd.Output()
	if err != nil {
		return err
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	fset := token.NewFileSet()
	// a package comes after those that it imports
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if checked[p.ImportPath] != nil || strings.HasSuffix(p.ImportPath, ".test") {
			continue // the second is the main package that go test writes
		}
		if checked[p.ImportPath], err = p.check(fset, checked); err != nil {
			return err
		}
	}
}

// check checks a package that imports some of those that were checked before. What functions of
// dependencies do is not looked at.
func (p listed) check(fset *token.FileSet, checked map[string]*types.Package) (*types.Package, error) {
	ours := p.Module != nil && p.Module.Main
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	config := types.Config{
		Sizes:            types.SizesFor("gc", "amd64"), // those of all platforms
		IgnoreFuncBodies: !ours,
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			if found := checked[path]; found != nil {
				return found, nil
			}
			return nil, fmt.Errorf("%s is not among the dependencies", path)
		}),
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // of "a [a.test]", which has the tests as well
	return config.Check(path, fset, files, nil)
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
