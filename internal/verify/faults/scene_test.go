package faults_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// ttl is short, so that leases end within a test, and long beside what a loaded machine adds: a
// worker that gets no CPU for half of it loses leases that it should keep. If more than four
// processes for each CPU want to run, it is three times as long.
var ttl = func() time.Duration {
	const short = 600 * time.Millisecond
	text, _ := os.ReadFile("/proc/loadavg")
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err == nil && load > 4*float64(runtime.NumCPU()) {
		return 3 * short
	}
	return short
}()

// calmLimit is how long a key may take to be free once the fault has ended.
const calmLimit = 15 * time.Second

// A scene is one row of the plan on one backend: servers, a resource and workers.
type scene struct {
	t          testing.TB
	row        row
	deployment *deployment
	dir        string
	log        *history.Log // the test's own
	resource   *worker
	workers    []*worker
	kills      []history.Event
	keys       map[string]bool // that workers take
	proofs     []string        // that the fault was in force
}

func newScene(t testing.TB, r row, backend string) *scene {
	t.Helper()
	// Not t.TempDir, whose name is too long for a socket.
	dir, err := os.MkdirTemp("", "faults")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &scene{t: t, row: r, dir: dir, keys: map[string]bool{}}
	s.deployment = startDeployment(t, backend, r)
	file, err := os.Create(filepath.Join(dir, "test.log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	s.log = history.NewLog("test", file)
	t.Cleanup(s.log.WatchStalls())
	s.resource = start(s, task{Process: "resource", Log: filepath.Join(dir, "resource.log"), Socket: s.socket(), Resource: true})
	return s
}

func (s *scene) socket() string { return filepath.Join(s.dir, "resource") }

// worker starts one more worker, with paths of its own to the servers. Each configure may change
// its task.
func (s *scene) worker(configure ...func(*task)) *worker {
	s.t.Helper()
	proxies, addrs := s.deployment.paths(s.t)
	name := fmt.Sprint("worker ", len(s.workers)+1)
	do := task{
		Process: name, Log: filepath.Join(s.dir, fmt.Sprint("worker", len(s.workers)+1, ".log")), Socket: s.socket(),
		Backend: s.deployment.backend, Addrs: addrs, TTL: ttl,
	}
	if sentinel := s.deployment.sentinel; sentinel != nil && sentinel.Path != nil {
		do.Reroute = map[string]string{sentinel.Path.Addr(): sentinel.Master.Addr()}
	}
	for _, change := range configure {
		change(&do)
	}
	w := start(s, do)
	w.proxies = proxies
	s.workers = append(s.workers, w)
	return w
}

// loop starts n workers with two clients each. They acquire and release the keys "a" and "b" until
// the scene is over. loop returns when each worker has held both.
func (s *scene) loop(n int) []*worker {
	s.t.Helper()
	var all []*worker
	for range n {
		w := s.worker()
		w.ask("take a")
		w.ask("take b")
		all = append(all, w)
	}
	for _, w := range all {
		w.ask("loop 2 a,b")
	}
	s.keys["a"], s.keys["b"] = true, true
	return all
}

// proven notes that the fault was in force, which has to be.
func (s *scene) proven(ok bool, what string, args ...any) {
	s.t.Helper()
	s.proofs = append(s.proofs, fmt.Sprintf(what, args...))
	require.True(s.t, ok, "the fault was not in force: "+what, args)
}

// live are the workers that were not killed.
func (s *scene) live() (all []*worker) {
	for _, w := range s.workers {
		if !w.dead {
			all = append(all, w)
		}
	}
	return all
}

// pass lets time pass while the workers loop: the fault is in force for as long.
func (s *scene) pass(d time.Duration) { time.Sleep(d) }

// admin returns a client of each server that goes by no proxy.
func (s *scene) admin() (all []*redis.Client) {
	for _, server := range s.deployment.servers {
		all = append(all, server.Client(s.t))
	}
	return all
}

// calm ends the loops, once the fault has ended, and has each worker take each key: nothing is
// stuck, and no worker is.
func (s *scene) calm() {
	s.t.Helper()
	for _, w := range s.live() {
		w.Tell("calm")
	}
	for _, w := range s.live() {
		w.reply()
	}
	for key := range s.keys {
		for _, w := range s.live() {
			if !w.retired {
				w.Tell("take " + key)
			}
		}
		for _, w := range s.live() {
			if !w.retired {
				w.reply()
			}
		}
	}
}

// finish ends all processes and returns what they say of themselves, and the whole history.
func (s *scene) finish() (last []closing, events []history.Event) {
	s.t.Helper()
	live := s.live()
	for _, w := range live {
		w.Tell("end")
	}
	for _, w := range live {
		last = append(last, w.end())
	}
	s.resource.CloseInput()
	s.resource.Ends()
	require.NoError(s.t, s.log.Err())
	files, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	require.NoError(s.t, err)
	for _, name := range files {
		file, err := os.Open(name)
		require.NoError(s.t, err)
		more, err := history.Read(file)
		require.NoError(s.t, err)
		require.NoError(s.t, file.Close())
		for _, e := range more {
			if e.Kind != history.Killed { // kills has those, under the name of the killed process
				events = append(events, e)
			}
		}
	}
	return last, append(events, s.kills...)
}

// logEvents logs the history of a row that has failed, or the end of it if it is long.
func (s *scene) logEvents(events []history.Event) {
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, e := range events {
		if e.Kind == history.Stall || e.Kind == history.Starved || e.Kind == history.Write && e.Outcome == history.OK {
			continue
		}
		fmt.Fprintf(&text, "%9.3f ms +%8.3f %s %s %s %.6s fence %d %s %s %s\n", float64(e.Call-events[0].Call)/1e6, float64(e.Return-e.Call)/1e6,
			e.Process, e.Kind, e.Key, e.Claim, e.Fence, e.Outcome, e.Reason, e.Err)
	}
	const most = 64 << 10
	s.t.Log(text.String()[max(0, text.Len()-most):])
}
