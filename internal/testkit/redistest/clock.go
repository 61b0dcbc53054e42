package redistest

import (
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// StartWithClock is Start for a server whose wall clock, by which Redis ends keys and answers
// TIME, is moved by Jump of the clock it returns; it may be moved while the server runs, and stays
// as it is across Restart. It needs a C compiler (CC, or cc): where there is none the test ends as
// Require does for want of redis-server.
func StartWithClock(t testing.TB, args ...string) (*Server, *clocktest.Clock) {
	t.Helper()
	Require(t)
	if _, err := clocktest.Compiler(); err != nil {
		leftout.For(t, err, "a C compiler", "apt-get install gcc")
	}
	clock := clocktest.New(t)
	env, err := clock.Preload(t.Context(), t.TempDir())
	if err != nil {
		t.Fatalf("redistest: start redis-server with a clock of its own: %v", err)
	}
	s := &Server{t: t, dir: t.TempDir(), env: env}
	if err := s.start(func(dir string, port *port) ([]string, error) {
		return append(commandLine(dir, port), args...), nil
	}); err != nil {
		t.Fatal(err)
	}
	return s, clock
}
