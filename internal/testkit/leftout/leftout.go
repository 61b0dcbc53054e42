// Package leftout skips tests that cannot run on this machine, or that a short run does without.
// It is the only package that skips a test:
//
//	func TestLong_drawsEachRoundOnEachBackend(t *testing.T) {
//		leftout.IfShort(t)
//		…
//	}
//
// "go test -v" shows skipped tests. CI sets the variables ONERUN_REQUIRE_…, with which a test fails
// if its program is missing.
package leftout

import (
	"os"
	"testing"
)

// requireEnv names the variable with which a test without its program fails.
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
	t.Skipf("%s is not installed (%s)", program, remedy)
}

// IfShort skips a test if go test runs with -short. Each test named TestLong_… begins with it: make
// test leaves these tests to make check. So does each test named TestWeekly_…, which only the
// weekly run has.
func IfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is long, and go test runs with -short")
	}
}

// ServersIfShort skips a test that needs servers if go test runs with -short, so that this takes
// less than a minute. With ONERUN_REQUIRE_REDIS it skips nothing.
func ServersIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv(requireEnv) == "" {
		t.Skip("it needs servers, and go test runs with -short")
	}
}

// If skips a test that cannot run as tests run now, and says why.
func If(t testing.TB, is bool, why string) {
	t.Helper()
	if is {
		t.Skip(why)
	}
}
