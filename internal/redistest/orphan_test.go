package redistest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/redistest"
)

// childEnv makes a test of this binary play the part of a child process.
const childEnv = "REDISTEST_CHILD"

// endThreads ends the threads that Go keeps for later: a goroutine that ends locked takes its
// thread along, and a hundred of them at once leave none over.
func endThreads() {
	var all, ready sync.WaitGroup
	ready.Add(100)
	for range 100 {
		all.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			ready.Wait()
		})
	}
	all.Wait()
}

func TestServer_diesWithAKilledTestBinary(t *testing.T) {
	redistest.Require(t)
	if os.Getenv(childEnv) != "" {
		fmt.Printf("pid %d\n", redistest.Start(t).PID())
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+t.TempDir())
	_, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())

	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	require.NoError(t, err, line)
	require.True(t, lives(pid))

	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	requireGone(t, pid)
}
