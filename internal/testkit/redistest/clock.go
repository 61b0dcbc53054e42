package redistest

import (
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// StartWithClock is Start for a server with a wall clock of its own. Redis expires keys and
// answers TIME by this clock. Jump of the returned clock moves it, also while the server runs.
// Restart does not change it. StartWithClock needs a C compiler (CC, or cc). If there is none, the
// test ends as Require ends it if redis-server is missing.
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
