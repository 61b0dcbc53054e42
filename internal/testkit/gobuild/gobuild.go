// Package gobuild has the go command build what a test needs, as the test itself was built. The
// compiler's cache then has most of it already.
package gobuild

import (
	"context"
	"fmt"
	"os/exec"
	"runtime/debug"
)

// Flags returns the flags of go build that decide which packages of the cache the test was built
// from: -race and -tags, if it has them.
func Flags() (flags []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, setting := range info.Settings {
		if setting.Key == "-race" || setting.Key == "-tags" {
			flags = append(flags, setting.Key+"="+setting.Value)
		}
	}
	return flags
}

// Program builds the main package in a folder, and writes it to a file, or into a folder that
// exists.
func Program(dir, to string) error {
	args := append([]string{"build"}, Flags()...)
	build := exec.CommandContext(context.Background(), "go", append(args, "-o", to, ".")...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("gobuild: %s: %w: %s", dir, err, out)
	}
	return nil
}
