package redistest

import (
	"os/exec"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// Require ends the test if the server program is not installed, as leftout.For does, or with
// -short, as leftout.ServersIfShort does. Every Start function calls it; call it yourself only to
// leave early.
func Require(t testing.TB) {
	t.Helper()
	leftout.ServersIfShort(t)
	if _, err := exec.LookPath(program()); err != nil {
		leftout.For(t, err, program(), "apt-get install redis-server, or run make test")
	}
}
