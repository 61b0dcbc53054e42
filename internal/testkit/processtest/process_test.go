package processtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

func TestStart_saysWhatCannotBeStarted(t *testing.T) {
	_, err := processtest.Start(exec.Command("./no-such-program"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestProcess_saysHowItHasEnded(t *testing.T) {
	p, err := processtest.Start(exec.Command("true"))
	require.NoError(t, err)
	require.NoError(t, p.Wait())
	require.True(t, p.Ended())
	p.Kill()
	require.NoError(t, p.Wait(), "it had ended by itself")
	require.ErrorIs(t, p.Freeze(), os.ErrProcessDone)
	require.ErrorIs(t, p.Thaw(), os.ErrProcessDone)

	p, err = processtest.Start(exec.Command("false"))
	require.NoError(t, err)
	require.EqualError(t, p.Wait(), "exit status 1")
}

func TestProcess_isKilledWhileItIsFrozen(t *testing.T) {
	p, err := processtest.Start(exec.Command("sleep", "100"))
	require.NoError(t, err)
	require.False(t, p.Ended())
	require.NoError(t, p.Freeze())
	p.Kill()
	require.True(t, p.Ended())
	require.EqualError(t, p.Wait(), "signal: killed")
	p.Kill()
}

func TestProcess_outlivesTheThreadThatStartedIt(t *testing.T) {
	var p *processtest.Process
	var err error
	var caller sync.WaitGroup
	caller.Go(func() {
		runtime.LockOSThread() // the thread ends with this goroutine, as it is not unlocked
		p, err = processtest.Start(exec.Command("sleep", "100"))
	})
	caller.Wait()
	require.NoError(t, err)
	require.Never(t, p.Ended, 50*time.Millisecond, 5*time.Millisecond)
	p.Kill()
}

// The process is busy, so it does not stop as soon as the signal is sent.
func TestProcess_standsStillOnceItIsFrozen(t *testing.T) {
	p, err := processtest.Start(exec.Command("sh", "-c", "while :; do :; done"))
	require.NoError(t, err)
	defer p.Kill()
	for range 20 {
		require.NoError(t, p.Freeze())
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		require.NoError(t, err)
		require.Contains(t, string(stat), ") T ")
		require.NoError(t, p.Thaw())
	}
}

// The parent's output is that of its child, too: it ends with both.
func TestProcess_endsWithItsParentAlsoIfItIsFrozen(t *testing.T) {
	parent := processtest.Self(t, childEnv+"=parent")
	pid, err := strconv.Atoi(parent.Says("has frozen"))
	require.NoError(t, err)
	t.Cleanup(func() {
		if !parent.Ended() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	go parent.Kill()
	select {
	case <-parent.Done():
	case <-time.After(10 * time.Second):
		require.Fail(t, "it lives on")
	}
}
