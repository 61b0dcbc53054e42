package redistest_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// childEnv makes a test of this binary play the part of a child process.
const childEnv = "REDISTEST_CHILD"

func TestServer_diesWithAKilledTestBinary(t *testing.T) {
	redistest.Require(t)
	if os.Getenv(childEnv) != "" {
		fmt.Printf("pid %d\n", redistest.Start(t).PID())
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+t.TempDir())
	child := processtest.StartChild(t, cmd)
	pid, err := strconv.Atoi(child.Says("pid"))
	require.NoError(t, err)
	require.True(t, lives(pid))
	child.Kill()
	requireGone(t, pid)
}
