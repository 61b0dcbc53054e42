// Package programtest runs the program of a test's package in other processes.
package programtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const env = "ONERUN_EXAMPLE_PROGRAM"

// Main is TestMain for a package whose main function is program.
func Main(m *testing.M, program func()) {
	if os.Getenv(env) != "" {
		program()
		return
	}
	redistest.VerifyNoLeaks(m)
}

// Start starts the program with the arguments. It is killed when the test ends.
func Start(t testing.TB, args ...string) *processtest.Child {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), env+"=1")
	return processtest.StartChild(t, cmd)
}
