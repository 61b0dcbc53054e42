package guardasynq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// A faultFeature is a middleware for the tasks of a type.
type faultFeature struct {
	key       guardasynq.KeyFunc
	opts      []guardasynq.Option
	attempts  int
	timeout   time.Duration // of each task
	usual     bool          // its Guard has the timeouts that go-redis has by itself
	postpones bool          // the handler does, once for each task
	every     bool          // each task runs itself; others may end as another one runs
}

// faultFeatures are the features that each fault is tried with, by the type of the task.
func faultFeatures() map[string]faultFeature {
	byCustomer := guardasynq.FromJSON("customer")
	with := func(opts ...guardasynq.Option) []guardasynq.Option { return opts }
	return map[string]faultFeature{
		"Requeue":                   {key: byCustomer, attempts: 25, every: true},
		"Requeue, last attempt":     {key: byCustomer, every: true},
		"Skip":                      {key: byCustomer, opts: with(guardasynq.WithBusy(guardasynq.Skip))},
		"Fail":                      {key: byCustomer, opts: with(guardasynq.WithBusy(guardasynq.Fail)), attempts: 1000, every: true},
		"Coalesce":                  {key: byCustomer, opts: with(guardasynq.WithBusy(guardasynq.Coalesce))},
		"WithOnce beside a key":     {key: byCustomer, opts: with(guardasynq.WithOnce(time.Hour, guardasynq.FromTaskID())), attempts: 25, every: true},
		"WithOnce, by customer":     {opts: with(guardasynq.WithOnce(time.Hour, byCustomer))},
		"Postpone":                  {key: byCustomer, attempts: 25, postpones: true, every: true},
		"Postpone, last attempt":    {key: byCustomer, postpones: true, every: true},
		"not guarded":               {key: guardasynq.Optional(guardasynq.FromHeader("None")), every: true},
		"WithWait(0), last attempt": {key: byCustomer, opts: with(guardasynq.WithWait(0)), every: true},
		// a busy machine may cost some attempts
		"a short timeout": {key: byCustomer, attempts: 8, timeout: 3 * time.Second, usual: true, every: true},
		"a minimum hold":  {key: byCustomer, opts: with(guardasynq.WithLease(guard.WithMinHold(200 * time.Millisecond))), every: true},
	}
}

// A faultSite is a lifeSite with the results of its tasks.
type faultSite struct {
	*lifeSite
	features map[string]faultFeature
	ids      map[string][]string // of the tasks, by type

	mu      sync.Mutex
	began   map[string]bool
	ended   map[string]int  // runs that ended well
	settled map[string]bool // tasks that ended without a run of their own
}

func newFaultSite(t *testing.T) *faultSite {
	t.Helper()
	return &faultSite{
		lifeSite: newLifeSite(t), features: faultFeatures(), ids: map[string][]string{},
		began: map[string]bool{}, ended: map[string]int{}, settled: map[string]bool{},
	}
}

// send enqueues tasks of each type, for a few customers.
func (s *faultSite) send(t *testing.T, when string) {
	t.Helper()
	for name, f := range s.features {
		for i := range 8 {
			id := fmt.Sprint(name, " ", when, " ", i)
			payload := fmt.Appendf(nil, `{"customer": %d}`, i%4)
			_, err := s.client.Enqueue(asynq.NewTask(name, payload), asynq.TaskID(id), asynq.MaxRetry(f.attempts), asynq.Timeout(f.timeout))
			require.NoError(t, err)
			s.ids[name] = append(s.ids[name], id)
		}
	}
}

type faultTask struct{}

// process starts a server over a Guard of its own, as a process has one, and returns what shuts
// both down.
func (s *faultSite) process(t *testing.T) (stop func()) {
	t.Helper()
	rdb := s.store.Client(t, func(o *redis.Options) { o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond })
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"))
	require.NoError(t, err)
	usualRDB := redis.NewClient(&redis.Options{Addr: s.store.Addr()})
	usual, err := guard.New(single.New(usualRDB), guard.WithNamespace("test"))
	require.NoError(t, err)
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			return next.ProcessTask(context.WithValue(ctx, faultTask{}, guardasynq.TaskID(ctx, task)), task)
		})
	})
	for name, f := range s.features {
		of := g
		if f.usual {
			of = usual
		}
		m, err := guardasynq.New(of, f.key, append([]guardasynq.Option{
			guardasynq.WithClient(s.client, s.inspector), aqObserve(s.note), guardasynq.WithLease(guard.WithTTL(5 * time.Second)),
		}, f.opts...)...)
		require.NoError(t, err)
		mux.Handle(name, m(asynq.HandlerFunc(s.handle)))
	}
	config := asynq.Config{
		Concurrency: 16, LogLevel: asynq.FatalLevel, ShutdownTimeout: 10 * time.Second,
		TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	}
	config = guardasynq.Configure(config)
	server := asynq.NewServer(lifeRedis(s.queue.Addr()), config)
	require.NoError(t, server.Start(mux))
	stop = sync.OnceFunc(func() {
		server.Shutdown()
		_ = g.Close(context.Background()) // it may have lost its store
		_ = usual.Close(context.Background())
		_ = usualRDB.Close()
	})
	t.Cleanup(stop)
	return stop
}

func (s *faultSite) note(ctx context.Context, o aqOutcome) {
	if slices.Contains([]string{resultSkipped, resultDone, resultCoalesced}, o.Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settled[ctx.Value(faultTask{}).(string)] = true
	}
}

func (s *faultSite) handle(ctx context.Context, task *asynq.Task) error {
	id := guardasynq.TaskID(ctx, task)
	s.mu.Lock()
	first := !s.began[id]
	s.began[id] = true
	s.mu.Unlock()
	f := s.features[task.Type()]
	if f.postpones && first {
		return guardasynq.Snooze(time.Second)
	}
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
		return guardasynq.Snooze(0) // the lease was lost, or the server shuts down
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[id]++
	return nil
}

// requireHandled requires that each task has run, or ended as its policy says, and none is
// archived.
func (s *faultSite) requireHandled(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(3 * lifeSoon); ; time.Sleep(lifePoll) { // between two looks
		q, err := s.inspector.GetQueueInfo("default")
		require.NoError(t, err)
		if q.Archived > 0 {
			archived, err := s.inspector.ListArchivedTasks("default")
			require.NoError(t, err)
			require.Empty(t, archived, "archived")
		}
		if q.Pending+q.Active+q.Scheduled+q.Retry == 0 {
			break
		}
		require.True(t, time.Now().Before(end), "the queue is empty: %+v", q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ids := range s.ids {
		for _, id := range ids {
			require.True(t, s.ended[id] > 0 || !s.features[name].every && s.settled[id], "%q has run, or another one has for it", id)
		}
	}
}

// Each fault, with each feature: tasks come before, during and after it. Each of them runs, or ends
// as its policy says; none is archived, and none is left.
//
// Tasks whose process was killed, frozen or shut down late are those of
// TestLong_tasksOverProcessesThatDieFreezeAndShutDown. The middleware uses the wall clock only for
// the order of Coalesce, so that clocks that differ affect nothing else.
func TestLong_everyTaskIsHandledAndNoneIsArchivedUnderFaults(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	requireEveryTaskHandled(t, map[string]siteFault{
		"store away for 3 s": outage(3 * time.Second),
		"one process after the other is replaced": func(t *testing.T, s *faultSite, stops []func(), during func()) {
			for _, stop := range stops {
				s.process(t)
				during()
				stop()
			}
		},
	})
}

func TestWeekly_everyTaskIsHandledAfterALongOutage(t *testing.T) {
	redistest.Long(t)
	requireEveryTaskHandled(t, map[string]siteFault{
		"store frozen for 9 s": func(_ *testing.T, s *faultSite, _ []func(), during func()) {
			s.store.Freeze()
			time.Sleep(time.Second) // the outage
			during()
			time.Sleep(8 * time.Second)
			s.store.Thaw()
		},
		"scaled to zero and back": func(t *testing.T, s *faultSite, stops []func(), during func()) {
			for _, stop := range stops {
				stop()
			}
			time.Sleep(time.Second) // no process is up
			during()
			s.process(t)
			s.process(t)
		},
		"store away for 15 s": outage(15 * time.Second),
		"store away for 60 s": outage(60 * time.Second),
	})
}

// A siteFault happens to a site. It calls during while it lasts.
type siteFault func(t *testing.T, s *faultSite, stops []func(), during func())

func outage(d time.Duration) siteFault {
	return func(_ *testing.T, s *faultSite, _ []func(), during func()) {
		s.store.Kill()
		time.Sleep(d / 2) // the outage
		during()
		time.Sleep(d / 2)
		s.store.Restart()
	}
}

func requireEveryTaskHandled(t *testing.T, faults map[string]siteFault) {
	t.Helper()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFaultSite(t)
			stops := []func(){s.process(t), s.process(t)}
			s.send(t, "before")
			lifeUntil(t, "some are done", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.ended) > 10
			})
			times := 0
			fault(t, s, stops, func() {
				times++
				s.send(t, fmt.Sprint("during ", times))
			})
			s.send(t, "after")
			s.requireHandled(t)
		})
	}
}

// What docs/asynq.md says of the queue's latency, which is asynq's: a task that was brought back is
// behind the backlog, and has no pending time.
func TestBrought_goesBehindTheBacklogWithoutAPendingTime(t *testing.T) {
	t.Parallel()
	s, w, holder := aqHolding(t, aqConfig(), guardasynq.WithWait(0))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("postponed"))
	s.awaitState(t, "postponed", asynq.TaskStateRetry)
	require.NoError(t, s.inspector.PauseQueue(aqQueue))
	time.Sleep(100 * time.Millisecond) // the server may be about to take a task
	s.enqueue(t, "import", aqJSON("other", "2"), asynq.TaskID("backlog"))
	holder.returns(nil)
	s.awaitState(t, "postponed", asynq.TaskStatePending)
	pending, err := s.inspector.ListPendingTasks(aqQueue)
	require.NoError(t, err)
	require.Len(t, pending, 2)
	require.Equal(t, "backlog", pending[0].ID, "the oldest")
	q, err := s.inspector.GetQueueInfo(aqQueue)
	require.NoError(t, err)
	require.Positive(t, q.Latency)
	require.NoError(t, s.inspector.DeleteTask(aqQueue, "backlog"))
	q, err = s.inspector.GetQueueInfo(aqQueue)
	require.NoError(t, err)
	require.Zero(t, q.Latency, "asynq has no pending time")
	require.NoError(t, s.inspector.UnpauseQueue(aqQueue))
	w.next(t).returns(nil)
	s.awaitEmpty(t)
}
