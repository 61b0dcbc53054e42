package redistest

import (
	"os"
	"os/exec"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// startProcess runs the server program with its output appended to the file named log, and env
// added to our environment.
func startProcess(log string, env []string, args ...string) (*processtest.Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program(), args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	return processtest.Start(cmd)
}
