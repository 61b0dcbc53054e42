package faults_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A worker is a child process, as the test sees it.
type worker struct {
	*processtest.Child
	t       testing.TB
	scene   *scene
	task    task
	proxies []*redistest.Proxy // its paths to the servers
	dead    bool
	retired bool // it cannot take leases any more, and is not asked to
}

// start runs the test binary with the task, and returns when it says that it is ready.
func start(s *scene, do task) *worker {
	s.t.Helper()
	text, err := json.Marshal(do)
	require.NoError(s.t, err)
	cmd := exec.Command(cmp.Or(do.program, os.Args[0]))
	cmd.Env = append(append(os.Environ(), do.env...), taskEnv+"="+string(text))
	w := &worker{Child: processtest.StartChild(s.t, cmd), t: s.t, scene: s, task: do}
	w.reply()
	return w
}

// receive returns the next answer and whether it is not an error. Answers come in the order of the
// lines.
func (w *worker) receive() (answer string, ok bool) {
	w.t.Helper()
	kind, rest, _ := strings.Cut(w.Next(), " ")
	return rest, kind == "ok"
}

// reply is receive for an answer that must not be an error.
func (w *worker) reply() string {
	w.t.Helper()
	answer, ok := w.receive()
	require.True(w.t, ok, "%s: %s", w.task.Process, answer)
	return answer
}

// ask sends a line and returns the answer, which must not be an error.
func (w *worker) ask(line string) string {
	w.t.Helper()
	w.Tell(line)
	return w.reply()
}

// try sends a line and returns the answer.
func (w *worker) try(line string) (answer string, ok bool) {
	w.t.Helper()
	w.Tell(line)
	return w.receive()
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
	w.Child.Kill()
	if w.Wait() == nil { // it says that it was killed
		w.t.Errorf("%s had ended by itself", w.task.Process)
	}
	e.Process = w.task.Process
	w.scene.kills = append(w.scene.kills, e)
}

// end returns the closing of a worker that has received "end", and waits until its process has
// ended.
func (w *worker) end() (last closing) {
	w.t.Helper()
	said := w.reply()
	require.NoError(w.t, json.Unmarshal([]byte(said), &last))
	w.dead = true
	w.Ends()
	return last
}
