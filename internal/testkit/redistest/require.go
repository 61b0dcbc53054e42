package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// requireEnv names the variable that turns a left-out test into a failed one.
const requireEnv = "ONERUN_REQUIRE_REDIS"

// Require ends the test as skipped when the server program is not installed, or as failed when
// ONERUN_REQUIRE_REDIS is set to anything. A skipped test is named in one line on the stderr
// of the go command too, since `go test ./...` swallows what passing packages print. Every
// Start function calls it; call it yourself only to leave early. A result that go test takes from
// its cache comes without the line; -count=1 runs the tests again.
func Require(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(program()); err != nil {
		leaveOut(t, err, program(), "apt-get install redis-server, or run make test")
	}
}

// leaveOut ends the test as Require does, for want of a program.
func leaveOut(t testing.TB, err error, program, remedy string) {
	t.Helper()
	if os.Getenv(requireEnv) != "" {
		t.Fatalf("redistest: %s is set and %v: %s", requireEnv, err, remedy)
	}
	line := fmt.Sprintf("LEFT OUT: %s %s: %s is not installed (%s)", testedPackage(), t.Name(), program, remedy)
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
