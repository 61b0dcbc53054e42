package etcdtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// This file is about the program of the servers, which the go command builds.

const serverPackage = "go.etcd.io/etcd/server/v3"

// program returns the path of the program.
func program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(programEnv); path != "" {
		return path
	}
	return tool(t, serverPackage)
}

// tool returns the path of a program that the go command builds, and then has in its cache.
func tool(t testing.TB, name string) string {
	t.Helper()
	cmd, err := goCommand("tool", "-n", name)
	if err == nil {
		var path []byte
		if path, err = cmd.Output(); err == nil {
			return strings.TrimSpace(string(path))
		}
	}
	leftout.Unless(t, requireEnv, err, "etcd", "the go command has to download and build it, so see what \"go tool -n\" says in internal/testkit/etcdtest/server")
	return ""
}

// goCommand returns a command of go in the module that has etcd.
func goCommand(args ...string) (*exec.Cmd, error) {
	root, err := top()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = filepath.Join(root, "internal/testkit/etcdtest/server"), append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	return cmd, nil
}

// shiftedProgram returns the path of the program whose wall clock follows a clocktest.Clock.
func shiftedProgram(t testing.TB) string {
	t.Helper()
	program(t) // skips the test if there is none
	dir := t.TempDir()
	shifted := filepath.Join(dir, "etcd")
	overlay, err := clocktest.Overlay(t.Context(), dir)
	if err == nil {
		var build *exec.Cmd
		if build, err = goCommand("build", "-overlay", overlay, "-o", shifted, serverPackage); err == nil {
			err = build.Run()
		}
	}
	if err != nil {
		t.Fatalf("etcdtest: build etcd with a clock that moves: %v", err)
	}
	return shifted
}

var errNoTop = errors.New("no folder above has a go.work")

// top returns the folder with go.work.
func top() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errNoTop
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
