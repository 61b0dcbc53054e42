package clocktest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed preload/wallclock.c
var preloadSource []byte

// Compiler is the C compiler that Preload needs: that of the environment's CC, or cc. The error
// says that it is not there.
func Compiler() (string, error) {
	name := os.Getenv("CC")
	if name == "" {
		name = "cc"
	}
	return exec.LookPath(name)
}

// Preload builds the library that moves the clock of a program in C, in the directory dir, and
// returns what the program is started with, beside the environment that it has anyway.
func (c *Clock) Preload(ctx context.Context, dir string) ([]string, error) {
	compiler, err := Compiler()
	if err != nil {
		return nil, fmt.Errorf("clocktest: no C compiler: %w", err)
	}
	source, library := filepath.Join(dir, "wallclock.c"), filepath.Join(dir, "wallclock.so")
	if err := os.WriteFile(source, preloadSource, 0o600); err != nil {
		return nil, fmt.Errorf("clocktest: %w", err)
	}
	out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("clocktest: compile the clock with %s: %w\n%s", compiler, err, out)
	}
	return append(c.Env(), "LD_PRELOAD="+library), nil
}
