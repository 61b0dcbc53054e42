// Package leftout ends tests that cannot run here, or that a short run leaves out. It is the only
// package that skips a test, and it names each one on the terminal:
//
//	func TestLong_drawsEachRoundOnEachBackend(t *testing.T) {
//		leftout.IfShort(t)
//		…
//	}
//
// The go command swallows what passing packages print, so the line goes to the stderr of the go
// command itself. A result that go test takes from its cache comes without the line; -count=1 runs
// the tests again.
package leftout

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// requireEnv names the variable that turns a left-out test into a failed one.
const requireEnv = "ONERUN_REQUIRE_REDIS"

// For ends the test for want of a program: as skipped, or as failed if ONERUN_REQUIRE_REDIS is set
// to anything. The remedy says how to install the program.
func For(t testing.TB, err error, program, remedy string) {
	t.Helper()
	Unless(t, requireEnv, err, program, remedy)
}

// Unless is For with another variable.
func Unless(t testing.TB, requireEnv string, err error, program, remedy string) {
	t.Helper()
	if os.Getenv(requireEnv) != "" {
		t.Fatalf("leftout: %s is set and %v: %s", requireEnv, err, remedy)
	}
	skip(t, fmt.Sprintf("%s is not installed (%s)", program, remedy))
}

// IfShort skips a test if go test runs with -short. Each test named TestLong_… begins with it: make
// test leaves these tests to make check.
func IfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		skip(t, "it is long, and go test runs with -short")
	}
}

// ServersIfShort skips a test that needs servers if go test runs with -short, so that this takes
// less than a minute. With ONERUN_REQUIRE_REDIS it skips nothing.
func ServersIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv(requireEnv) == "" {
		skip(t, "it needs servers, and go test runs with -short")
	}
}

func skip(t testing.TB, why string) {
	t.Helper()
	line := fmt.Sprintf("LEFT OUT: %s %s: %s", testedPackage(), t.Name(), why)
	announce(line)
	t.Skip(line)
}

// testedPackage is the import path of the package under test: go records it, with ".test"
// appended, as the main package of the test binary.
func testedPackage() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		return strings.TrimSuffix(info.Path, ".test")
	}
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
}
