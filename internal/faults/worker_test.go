package faults_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/history"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

// answerLimit is how long a worker may take to answer a line: all that it does is bounded by less.
const answerLimit = 60 * time.Second

// A worker is a child process, as the test sees it.
type worker struct {
	t       testing.TB
	scene   *scene
	task    task
	proxies []*redistest.Proxy // its paths to the servers
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string
	reaped  chan error
	stderr  *bytes.Buffer
	dead    bool
	retired bool // it cannot take leases any more, and is not asked to
}

// start runs the test binary with the task, and returns when it says that it is ready. The kernel kills it when the test binary ends: that goes by the thread that
// started it, which a goroutine keeps until then.
func start(s *scene, do task) *worker {
	s.t.Helper()
	env, err := json.Marshal(do)
	require.NoError(s.t, err)
	w := &worker{t: s.t, scene: s, task: do, lines: make(chan string, 16), reaped: make(chan error, 1), stderr: &bytes.Buffer{}}
	w.cmd = exec.Command(cmp.Or(do.program, os.Args[0]))
	// The race detector would else have each process sleep for a second when it ends.
	w.cmd.Env = append(append(os.Environ(), do.env...), taskEnv+"="+string(env), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.cmd.Stderr = w.stderr
	w.stdin, err = w.cmd.StdinPipe()
	require.NoError(s.t, err)
	stdout, err := w.cmd.StdoutPipe()
	require.NoError(s.t, err)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			w.lines <- in.Text()
		}
		close(w.lines)
		w.reaped <- w.cmd.Wait()
	}()
	require.NoError(s.t, <-started)
	s.t.Cleanup(func() {
		if !w.dead {
			w.Kill()
		}
	})
	w.reply()
	return w
}

// tell sends the worker a line and does not wait for the answer.
func (w *worker) tell(line string) {
	w.t.Helper()
	_, err := io.WriteString(w.stdin, line+"\n")
	require.NoError(w.t, err, "%s: %s", w.task.Process, w.stderr)
}

// hears returns the answer to the earliest line that it was not returned for, and whether it is not an error.
func (w *worker) hears() (answer string, ok bool) {
	w.t.Helper()
	select {
	case line, open := <-w.lines:
		require.True(w.t, open, "%s has ended: %s", w.task.Process, w.stderr)
		kind, rest, _ := strings.Cut(line, " ")
		return rest, kind == "ok"
	case <-time.After(answerLimit):
		require.Fail(w.t, "no answer", "%s: %s", w.task.Process, w.stderr)
		return "", false
	}
}

// reply is hears for an answer that must not be an error.
func (w *worker) reply() string {
	w.t.Helper()
	answer, ok := w.hears()
	require.True(w.t, ok, "%s: %s", w.task.Process, answer)
	return answer
}

// ask sends a line and returns the answer, which must not be an error.
func (w *worker) ask(line string) string {
	w.t.Helper()
	w.tell(line)
	return w.reply()
}

// try sends a line and returns the answer.
func (w *worker) try(line string) (answer string, ok bool) {
	w.t.Helper()
	w.tell(line)
	return w.hears()
}

// fence is ask for a command whose answer is one.
func (w *worker) fence(line string) uint64 {
	w.t.Helper()
	fence, err := strconv.ParseUint(w.ask(line), 10, 64)
	require.NoError(w.t, err)
	return fence
}

// Kill ends the process with SIGKILL and notes when.
func (w *worker) Kill() {
	w.dead = true
	e := w.scene.log.Begin(history.Event{Kind: history.Killed})
	_ = w.cmd.Process.Kill() // fails only if it is gone
	for range w.lines {      // so that it can be reaped
	}
	if err := <-w.reaped; err == nil { // it says that it was killed
		w.t.Errorf("%s had ended by itself", w.task.Process)
	}
	e.Process = w.task.Process
	w.scene.kills = append(w.scene.kills, e)
}

// Freeze stops the process with SIGSTOP and returns when it stands still.
func (w *worker) Freeze() {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(w.t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(w.cmd.Process.Pid) + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ")
	}, 5*time.Second, time.Millisecond)
}

// Thaw lets it go on.
func (w *worker) Thaw() {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Signal(syscall.SIGCONT))
}

// end returns what a worker that was told to end says of itself, and waits until it has ended.
func (w *worker) end() (last closing) {
	w.t.Helper()
	said := w.reply()
	require.NoError(w.t, json.Unmarshal([]byte(said), &last))
	w.dead = true
	for range w.lines {
	}
	require.NoError(w.t, <-w.reaped, "%s: %s", w.task.Process, w.stderr)
	return last
}
