package soak_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A child is a process of the test's.
type child struct {
	name  string
	log   string // the file of its events
	cmd   *exec.Cmd
	stdin io.Writer
	ended chan struct{}

	mu    sync.Mutex
	said  map[string]bool
	wrong string
	more  chan struct{} // closed and replaced when it has said something
}

// startChild starts the test binary as a child, which the kernel kills with this process, even if it stands still.
func startChild(t *testing.T, name, env string, what any) *child {
	t.Helper()
	text, err := json.Marshal(what)
	require.NoError(t, err)
	c := &child{name: name, cmd: exec.Command(os.Args[0]), ended: make(chan struct{}), said: map[string]bool{}, more: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread ends that made it, which Go does at will.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.ended)
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.hear(lines.Text())
		}
		_ = c.cmd.Wait() // what it has to say of its end is on its last line
	}()
	require.NoError(t, <-started)
	t.Cleanup(c.kill)
	return c
}

func (c *child) hear(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[line] = true
	if rest, ok := strings.CutPrefix(line, "fails "); ok {
		c.wrong = rest
	}
	close(c.more)
	c.more = make(chan struct{})
}

// awaits waits until the child has said a line that begins so, and returns the rest of it.
func (c *child) awaits(t *testing.T, begin string) string {
	t.Helper()
	over := time.After(soon)
	for {
		c.mu.Lock()
		more, wrong := c.more, c.wrong
		for line := range c.said {
			if rest, ok := strings.CutPrefix(line, begin); ok {
				c.mu.Unlock()
				return rest
			}
		}
		c.mu.Unlock()
		require.Empty(t, wrong, "%s fails", c.name)
		select {
		case <-more:
		case <-over:
			require.FailNow(t, c.name+" has not said: "+begin)
		}
	}
}

// hasSaid reports whether the child has said that.
func (c *child) hasSaid(line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said[line]
}

func (c *child) tell(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(c.stdin, line+"\n")
	require.NoError(t, err, "%s has gone: %s", c.name, c.wrong)
}

// kill kills the child, and returns when it has gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have gone
	<-c.ended
}

// pause stops the child for some time.
func (c *child) pause(t *testing.T, d time.Duration) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(d) // the pause
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
}
