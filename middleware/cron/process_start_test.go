package guardcron_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/redistest"
)

// A procChild is a process that does what an order says.
type procChild struct {
	order procOrder
	cmd   *exec.Cmd
	lines chan string // what it says
	done  chan struct{}
}

// startProc starts a process, and returns when its jobs are in its cron.
func startProc(t *testing.T, order procOrder) *procChild {
	t.Helper()
	text, err := json.Marshal(order)
	require.NoError(t, err)
	c := &procChild{order: order, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), workerEnv+"=cron", procEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also one that is stopped ends with this process
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread ends that made it, which Go does at will.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for scan := bufio.NewScanner(out); scan.Scan(); {
			c.lines <- scan.Text()
		}
		close(c.lines)
		_, _ = io.Copy(io.Discard, out)
		_ = c.cmd.Wait()
	}()
	require.NoError(t, <-started)
	t.Cleanup(c.kill)
	c.says(t, "runs")
	return c
}

func (c *procChild) says(t *testing.T, want string) {
	t.Helper()
	over := time.After(procSoon)
	for {
		select {
		case line, ok := <-c.lines:
			require.True(t, ok, "the process has ended without saying %q", want)
			require.False(t, strings.HasPrefix(line, "fails"), line)
			if line == want {
				return
			}
		case <-over:
			require.FailNow(t, "the process has not said "+want)
		}
	}
}

func (c *procChild) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(s))
}

// kill kills the process, and waits for its end.
func (c *procChild) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// stop ends the process as an orchestrator does.
func (c *procChild) stop(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGTERM)
	c.says(t, "ended")
	<-c.done
}

// procPlace is a store and a resource.
func procPlace(t *testing.T, nodes int, ttl time.Duration, jobs ...procJob) (procOrder, *procLog) {
	t.Helper()
	resource := redistest.Start(t)
	order := procOrder{Log: resource.Addr(), TTL: ttl, Jobs: jobs}
	for _, server := range redistest.StartN(t, nodes) {
		order.Addrs = append(order.Addrs, server.Addr())
	}
	return order, &procLog{rdb: resource.Client(t)}
}

// as returns the order for a process.
func (o procOrder) as(who string, ahead time.Duration) procOrder {
	o.Who, o.Ahead = who, ahead
	return o
}

// startHere runs what an order says in this process, until the test ends.
func startHere(t *testing.T, order procOrder) *procWorker {
	t.Helper()
	w, err := newProcWorker(order)
	require.NoError(t, err)
	w.cron.Start()
	t.Cleanup(func() { _ = w.close(procSoon) })
	return w
}

// untilTick sleeps until the resource's and this process's clock show a second and some more.
func untilTick(second int64, into time.Duration) {
	time.Sleep(time.Until(time.Unix(second, 0).Add(into))) // ticks are instants of the real clock
}
