package clocktest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed overlay/shift.go.txt
var shiftSource []byte

// The place at which time.Now reads the clocks, and what replaces it.
var (
	readsClocks  = []byte("func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n")
	readsShifted = []byte("func Now() Time {\n\tsec, nsec, mono := shiftedNow()\n")
)

// BuildGo builds a Go program whose wall clock follows a Clock, and puts it into the directory
// dir. The args are those of "go test" if the first of them is "-c", so that a test binary is
// built, and those of "go build" otherwise; the last is the package. It returns the program. The
// first time it compiles the standard library and all that the program is made of, which takes a
// minute of CPU; from then on the cache has it.
func BuildGo(ctx context.Context, dir string, args ...string) (program string, err error) {
	overlay, err := Overlay(ctx, dir)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "program")
	command := []string{"build"}
	if args[0] == "-c" {
		command = []string{"test"}
	}
	command = append(append(command, "-overlay", overlay, "-o", program), args...)
	if out, err := exec.CommandContext(ctx, "go", command...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("clocktest: go %s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return program, nil
}

// Overlay writes into dir what makes the go command see another package time, and returns the file
// for "go build -overlay". BuildGo is for packages of the workspace, this is for others.
func Overlay(ctx context.Context, dir string) (file string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("clocktest: %w", err)
		}
	}()
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	if bytes.Count(source, readsClocks) != 1 {
		return "", fmt.Errorf("%s does not read the clocks in the way that is known here: %q", filepath.Join(std, "time.go"), readsClocks)
	}
	replaced := map[string][]byte{
		"time.go":         bytes.Replace(source, readsClocks, readsShifted, 1),
		"onerun_shift.go": shiftSource,
	}
	replace := map[string]string{}
	for name, content := range replaced {
		file := filepath.Join(dir, name+".txt")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(std, name)] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}
