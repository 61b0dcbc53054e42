package guardasynq_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	lifeCustomers = 50
	lifeSlots     = 6 // handlers at once in each process
)

// A lifeLength is how many tasks a lifeStorm has, and how long a lease of theirs is.
type lifeLength struct {
	tasks int
	ttl   time.Duration
	// aged means that the test sets back asynq's leases of lost tasks. asynq recovers such tasks
	// only a minute after the last heartbeat.
	aged bool
}

// lifeKinds are the ways in which a handler learns that it must not go on.
var lifeKinds = []string{"heeding", "careful", "blind"}

// Tasks of fifty customers, over four processes. One process is killed. One is frozen past all its
// leases and wakes up again. One is shut down while it has tasks.
//
// Each handler writes its beginning, its steps and its end to the resource. The resource must see
// this:
//
//   - No run begins while another run of its customer is open. A run is open if it has begun and
//     has neither ended nor stopped. Leases cannot prevent two exceptions. The runs of the killed
//     process stay open for ever, but they write no more. The runs of the frozen process are open
//     until it wakes up. Then each of them stops, because its context has ended or its lease is
//     not valid, or its next write is refused, because the resource has seen a higher fence. No
//     write of such a run is accepted after the other run has begun.
//   - The fences of a customer's runs increase, and each belongs to one run.
//   - Every task is done, none is archived, and none is left in the queue.
//   - A task that has begun more than once was with one of those three processes. It has begun
//     once more for each.
func TestLong_tasksOverProcessesThatDieFreezeAndShutDown(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	lifeStormOver(t, lifeLength{tasks: 250, ttl: 8 * time.Second, aged: true})
}

func TestWeekly_aThousandTasksOverProcessesThatDieFreezeAndShutDown(t *testing.T) {
	redistest.Long(t)
	lifeStormOver(t, lifeLength{tasks: 1000, ttl: 8 * time.Second})
}

func lifeStormOver(t *testing.T, length lifeLength) {
	t.Helper()
	start := time.Now()
	s := newLifeStorm(t)
	s.config.TTL = length.ttl
	killed, frozen, steady := s.process(t, "killed"), s.process(t, "frozen"), s.process(t, "steady")
	s.config.ShutdownTimeout = 300 * time.Millisecond
	shut := s.process(t, "shut")
	s.config.ShutdownTimeout = lifeSoon
	all := []*lifeProcess{killed, frozen, shut, steady}
	for _, p := range all {
		p.Says("ready")
	}
	for i := range 3*lifeSlots + 2 { // more than three processes can take
		// longer than a lease: until "go"
		s.enqueue(t, i, lifeTask{Work: 300, Kind: "long " + lifeKinds[i%len(lifeKinds)]})
	}
	for range length.tasks * 48 / 100 {
		s.enqueueShort(t)
	}
	lifeUntil(t, "all processes are at work", func() bool {
		return !slices.ContainsFunc(all, func(p *lifeProcess) bool { return len(s.resource.open(t, p.name)) == 0 })
	})
	require.NoError(t, frozen.Freeze())
	frozenAt := time.Now()
	killed.Kill()
	require.EqualError(t, killed.Wait(), "signal: killed")
	inShut := s.resource.open(t, shut.name)
	require.NoError(t, shut.Signal(syscall.SIGTERM))
	inKilled, inFrozen := s.resource.open(t, killed.name), s.resource.open(t, frozen.name)
	// handlers that ignore their contexts still run: asynq has returned their tasks to the queue
	shut.Says("shut down")
	require.NoError(t, s.resource.rdb.Set(t.Context(), "go", 1, 0).Err())
	shut.Ends()

	// asynq recovers a task whose lease ended half a minute ago, that is a minute after the last
	// heartbeat. It does so once a minute and when a server starts.
	lost := 61 * time.Second
	if length.aged {
		// the Guard's leases are not set back
		lost = max(length.ttl, lifeHeartbeat) + 2*time.Second
	}
	for time.Since(frozenAt) < lost {
		if s.enqueued < length.tasks*9/10 {
			s.enqueueShort(t)
		}
		// the tasks of a day come one by one
		time.Sleep(140 * time.Millisecond)
	}
	if length.aged {
		s.ageLeases(t, frozenAt)
	}
	replacement := s.process(t, "replacement")
	s.awaitDone(t, inKilled, inFrozen, inShut)
	inFrozen = s.resource.open(t, frozen.name) // without what had just ended
	require.NotEmpty(t, inFrozen)
	require.NoError(t, frozen.Thaw())
	// a run that is not open has ended, stopped or been refused
	lifeUntil(t, "what was frozen stops", func() bool {
		open := s.resource.open(t, frozen.name)
		for run := range open {
			if _, was := inFrozen[run]; was {
				return false
			}
		}
		return true
	})
	for _, p := range []*lifeProcess{steady, replacement} {
		p.CloseInput()
		p.Ends()
	}
	before := len(s.resource.log(t))
	for s.enqueued < length.tasks {
		s.enqueueShort(t)
	}
	lifeUntil(t, "all are done", func() bool { return s.resource.rdb.SCard(t.Context(), "done").Val() == int64(length.tasks) })
	require.Zero(t, s.awaitEmpty(t))
	log := s.resource.log(t)
	for _, w := range log[before:] {
		require.Equal(t, frozen.name, w.Process, "it is well again, and works alone")
	}
	frozen.CloseInput()
	frozen.Ends()
	s.requireHistory(t, log, inFrozen, length.tasks)
	t.Logf("%.0f s in all; held by the killed process: %d, the frozen one: %d, the one that was shut down: %d", time.Since(start).Seconds(), len(inKilled), len(inFrozen), len(inShut))
}

// A lifeStorm is a queue, a store of leases and a resource, with processes that work.
type lifeStorm struct {
	*lifeSite
	resource *lifeResource
	config   lifeWorkerConfig
	enqueued int
}

func newLifeStorm(t *testing.T) *lifeStorm {
	t.Helper()
	resource := redistest.Start(t)
	s := &lifeStorm{lifeSite: newLifeSite(t), resource: newLifeResource(resource.Client(t), "")}
	s.config = lifeWorkerConfig{
		Queue: s.queue.Addr(), Store: s.store.Addr(), Resource: resource.Addr(),
		Concurrency: lifeSlots, ShutdownTimeout: lifeSoon,
	}
	return s
}

func (s *lifeStorm) process(t *testing.T, name string) *lifeProcess {
	t.Helper()
	c := s.config
	c.Name = name
	return startLifeProcess(t, c)
}

func (s *lifeStorm) enqueue(t *testing.T, customer int, task lifeTask) {
	t.Helper()
	task.Customer = fmt.Sprint("customer ", customer)
	_, err := s.client.Enqueue(newLifeTask(t, task), asynq.TaskID(fmt.Sprint("task ", s.enqueued)))
	require.NoError(t, err)
	s.enqueued++
}

func (s *lifeStorm) enqueueShort(t *testing.T) {
	t.Helper()
	s.enqueue(t, s.enqueued%lifeCustomers, lifeTask{Work: 5 + rand.N(16), Kind: lifeKinds[rand.N(len(lifeKinds))]})
}

// awaitDone waits until the tasks of the runs are done.
func (s *lifeStorm) awaitDone(t *testing.T, runs ...map[string]string) {
	t.Helper()
	for _, some := range runs {
		for run, task := range some {
			lifeUntil(t, fmt.Sprintf("%s is done, which %s had", task, run), func() bool {
				return s.resource.rdb.SIsMember(t.Context(), "done", task).Val()
			})
		}
	}
}

// requireHistory requires what lifeStormOver says of the log.
func (s *lifeStorm) requireHistory(t *testing.T, log []lifeWrite, inFrozen map[string]string, tasks int) {
	t.Helper()
	fences := map[string]uint64{}  // the highest, by customer
	overtaken := map[string]bool{} // runs that were open at another's begin
	last := map[string]lifeWrite{} // by run
	begun := map[string][]string{} // processes, by task
	ends := map[string]int{}       // by task
	refused, stopped := 0, 0       // of the frozen process
	of := func(run, process string) bool { return strings.HasPrefix(run, process+"/") }
	for _, w := range log {
		switch {
		case w.Refused:
			require.Equal(t, "frozen", w.Process, "%+v", w)
			require.LessOrEqual(t, w.Fence, fences[w.Customer])
			refused++
		case w.Op == "begin":
			require.Greater(t, w.Fence, fences[w.Customer], "%+v", w)
			fences[w.Customer] = w.Fence
			begun[w.Task] = append(begun[w.Task], w.Process)
			if w.Over != "" {
				require.True(t, of(w.Over, "killed") || of(w.Over, "frozen"), "%+v", w)
				overtaken[w.Over] = true
			}
		case w.Op == "stop":
			require.Contains(t, []string{"frozen", "shut"}, w.Process, "%+v", w)
			if w.Process == "frozen" {
				stopped++
			}
		default:
			require.Equal(t, fences[w.Customer], w.Fence, "%+v", w)
			require.False(t, overtaken[w.Run], "%+v", w)
			if w.Op == "end" {
				ends[w.Task]++
			}
		}
		last[w.Run] = w
	}
	for run := range inFrozen {
		require.True(t, overtaken[run], run)
		require.True(t, last[run].Refused || last[run].Op == "stop", "%+v", last[run])
	}
	require.Len(t, ends, tasks)
	repeats, twice := 0, 0
	for task, processes := range begun {
		repeats += len(processes) - 1
		twice += ends[task] - 1
		// the frozen process may also begin a task that it had in its hands after another's run
		steady := slices.DeleteFunc(slices.Clone(processes), func(p string) bool { return p == "killed" || p == "frozen" || p == "shut" })
		require.LessOrEqual(t, len(steady), 1, "%s ran in %v", task, processes)
	}
	require.LessOrEqual(t, repeats, 3*lifeSlots)
	t.Logf("begun again: %d, of which done twice: %d; overtaken: %d; after the thaw refused: %d, stopped: %d", repeats, twice, len(overtaken), refused, stopped)
}
