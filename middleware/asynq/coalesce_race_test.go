package guardasynq_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// aqStops stop deliveries at points. At "T2 acquire", task T2 asks for its key. At "T2 change", it
// asks for the lease on the follow-ups. Each of these with " got" is after the answer. At "T2
// look", it has looked whether the key is free. "T2 run" is before its run. The follow-ups are a
// and b.
type aqStops struct {
	mu    sync.Mutex
	stops map[string]*aqStop
}

// An aqStop has two channels: the delivery that reaches it closes one, and the test that lets the
// delivery go on closes the other.
type aqStop struct {
	once    sync.Once
	reached chan struct{}
	on      chan struct{}
}

func (s *aqStops) at(t *testing.T, point string) *aqStop {
	t.Helper()
	stop := &aqStop{reached: make(chan struct{}), on: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops == nil {
		s.stops = map[string]*aqStop{}
	}
	s.stops[point] = stop
	t.Cleanup(stop.pass)
	return stop
}

func (s *aqStop) await(t *testing.T) {
	t.Helper()
	select {
	case <-s.reached:
	case <-time.After(aqSoon):
		require.FailNow(t, "nothing came to the stop")
	}
}

func (s *aqStop) pass() { s.once.Do(func() { close(s.on) }) }

func (s *aqStops) hold(ctx context.Context, e guard.Event, what, suffix string) {
	id, _ := asynq.GetTaskID(ctx)
	if strings.HasPrefix(id, "follow-up~") {
		id = id[len(id)-1:]
	}
	switch {
	case what == "run":
	case strings.HasSuffix(e.Key, ":follow-up"):
		what = "change"
	}
	point := id + " " + what + suffix
	s.mu.Lock()
	stop := s.stops[point]
	delete(s.stops, point)
	s.mu.Unlock()
	if stop != nil {
		close(stop.reached)
		<-stop.on
	}
}

func (s *aqStops) hook() guard.Hook {
	return guard.Hook{
		Call: func(ctx context.Context, e guard.CallEvent) {
			if e.Op == driver.OpInspect {
				s.hold(ctx, e.Event, "look", "")
			}
		},
		AcquireStart: func(ctx context.Context, e guard.Event) context.Context { s.hold(ctx, e, "acquire", ""); return ctx },
		AcquireEnd:   func(ctx context.Context, e guard.AcquireEvent) { s.hold(ctx, e.Event, "acquire", " got") },
		RunStart: func(ctx context.Context, e guard.RunEvent) context.Context {
			s.hold(ctx, e.Event, "run", "")
			return ctx
		},
		Release: func(ctx context.Context, e guard.ReleaseEvent) { s.hold(ctx, e.Event, "release", "") },
	}
}

// aqRacing serves w behind a middleware that coalesces, with stops. No task comes back by itself
// during a test.
func aqRacing(t *testing.T) (*aqSite, *aqWork, *aqStops) {
	t.Helper()
	s, w, stops := newAqSite(t), newAqWork(t), new(aqStops)
	m := s.middlewareOf(t, s.newGuard(t, guard.WithHook(stops.hook())), guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce),
		guardasynq.WithDelay(10*time.Minute))
	s.serve(t, aqConfig(), m(w))
	t.Cleanup(w.release)
	return s, w, stops
}

func (s *aqSite) send(t *testing.T, id string, opts ...asynq.Option) {
	t.Helper()
	s.enqueue(t, "index", aqJSON("k", id), append(opts, asynq.TaskID(id))...)
}

// followUp returns the ID of the only follow-up that is scheduled.
func (s *aqSite) followUp(t *testing.T) string {
	t.Helper()
	tasks, err := s.inspector.ListScheduledTasks(aqQueue)
	require.NoError(t, err)
	require.Len(t, tasks, 1)
	return tasks[0].ID
}

// aqStored returns the key of a run as the store has it.
func aqStored(t *testing.T, r *aqRun) string {
	t.Helper()
	lease, ok := guard.FromContext(r.ctx)
	require.True(t, ok)
	return lease.Key()
}

func requireAqRuns(t *testing.T, s *aqSite, w *aqWork, ids ...string) {
	t.Helper()
	s.awaitEmpty(t)
	w.none(t)
	var want []string
	for _, id := range ids {
		want = append(want, aqJSON("k", id))
	}
	require.Equal(t, want, w.payloads())
}

// The worker of the follow-up takes long to ask for the key: until a newer task has the key, runs,
// or has run.
func TestCoalesce_anOlderFollowUpDoesNotRunAfterANewerTask(t *testing.T) {
	t.Parallel()
	for _, newerTask := range []string{"has the key", "runs", "has run"} {
		t.Run("the newer one "+newerTask, func(t *testing.T) {
			t.Parallel()
			s, w, stops := aqRacing(t)
			s.send(t, "T1")
			first := w.next(t)
			s.trigger(t, "T2")
			older, run := stops.at(t, "a acquire"), stops.at(t, "T5 run")
			first.returns(nil)
			older.await(t)
			s.send(t, "T5")
			run.await(t)
			if newerTask == "has the key" {
				older.pass()
			}
			run.pass()
			newer := w.next(t)
			if newerTask == "has run" {
				newer.returns(nil)
				s.awaitGone(t, "T5")
			}
			if newerTask != "has the key" {
				older.pass()
				s.outcomes.await(t, resultCoalesced, 2)
			}
			newer.returns(nil)
			requireAqRuns(t, s, w, "T1", "T5")
		})
	}
}

// T3 came first, but T4 was coalesced while T3 was on its way to the key. T3 then does not run,
// and the key was busy when T4 looked.
func TestCoalesce_aTaskThatIsOvertakenBringsTheNewerOne(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	first := w.next(t)
	ask, run, change := stops.at(t, "T3 acquire"), stops.at(t, "T3 run"), stops.at(t, "T4 change")
	s.send(t, "T3")
	ask.await(t)
	s.send(t, "T4")
	change.await(t)
	first.returns(nil)
	s.awaitGone(t, "T1")
	ask.pass()
	run.await(t)
	change.pass()
	s.awaitGone(t, "T4")
	run.pass()
	w.next(t).returns(nil)
	requireAqRuns(t, s, w, "T1", "T4")
}

// The run ends before T3 is a follow-up. T4, which is newer, comes while T3 looks at the key.
func TestCoalesce_aTaskThatComesWhileAnotherOneLooksAtTheKeyRuns(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	first := w.next(t)
	change, looked := stops.at(t, "T3 change got"), stops.at(t, "T3 look")
	s.send(t, "T3")
	change.await(t)
	first.returns(nil)
	s.awaitGone(t, "T1")
	change.pass()
	looked.await(t)
	s.send(t, "T4")
	w.next(t).returns(nil)
	s.awaitGone(t, "T4")
	looked.pass()
	requireAqRuns(t, s, w, "T1", "T4")
}

// Both follow-ups are with workers, so that none can be placed.
func TestCoalesce_aTaskThatFindsBothFollowUpsWithWorkersComesPromptly(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	run := w.next(t)
	s.trigger(t, "T2")
	run.returns(nil)
	run = w.next(t) // follow-up a
	s.trigger(t, "T3")
	b := stops.at(t, "b acquire")
	require.NoError(t, s.inspector.RunTask(aqQueue, s.followUp(t)))
	b.await(t)
	s.send(t, "T4")
	s.awaitState(t, "T4", asynq.TaskStateRetry)
	b.pass()
	s.outcomes.await(t, resultPostponed, 2)
	run.returns(nil)
	for {
		run := w.next(t)
		run.returns(nil)
		if run.payload == aqJSON("k", "T4") {
			break
		}
		require.Equal(t, aqJSON("k", "T3"), run.payload)
	}
	s.awaitEmpty(t)
	w.none(t)
}

// The follow-up has just found the key busy when the run ends, and asynq has not put it aside yet.
func TestCoalesce_aFollowUpThatIsAboutToWaitComesPromptly(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	first := w.next(t)
	s.trigger(t, "T2")
	key := aqStored(t, first)
	change := stops.at(t, "a change")
	require.NoError(t, s.inspector.RunTask(aqQueue, s.followUp(t)))
	change.await(t)
	first.returns(nil)
	require.Eventually(t, func() bool { // it has released the key, and now looks for follow-ups
		lease, err := s.guard.Acquire(t.Context(), key)
		return err == nil && lease.Release(t.Context()) == nil
	}, aqSoon, time.Millisecond)
	change.pass()
	w.next(t).returns(nil)
	requireAqRuns(t, s, w, "T1", "T2")
}

// Another caller holds the lease on the follow-ups for longer than a task waits for it.
func TestCoalesce_aTaskThatCannotBePlacedYetStaysWithItsWorker(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	first := w.next(t)
	change, err := s.guard.Acquire(t.Context(), aqStored(t, first)+":follow-up")
	require.NoError(t, err)
	defer func() { require.NoError(t, change.Release(context.Background())) }()
	got := stops.at(t, "T2 change got")
	s.send(t, "T2")
	got.await(t)
	got.pass()
	first.returns(nil)
	w.next(t).returns(nil)
	requireAqRuns(t, s, w, "T1", "T2")
	require.Empty(t, s.outcomes.of(resultPostponed))
}

// asynq archives T2 for its timeout while it is on its way to become a follow-up.
func TestCoalesce_aTaskThatAsynqHasGivenUpIsNotEnqueuedAgain(t *testing.T) {
	t.Parallel()
	s, w, stops := aqRacing(t)
	s.send(t, "T1")
	first := w.next(t)
	change := stops.at(t, "T2 change")
	s.send(t, "T2", asynq.MaxRetry(0), asynq.Timeout(time.Second))
	change.await(t)
	s.awaitState(t, "T2", asynq.TaskStateArchived)
	change.pass()
	s.outcomes.await(t, resultCanceled, 1)
	first.returns(nil)
	requireAqRuns(t, s, w, "T1")
	require.NotNil(t, s.info(t, "T2"))
}

// The outer middleware has postponed T5, because its tenant was busy. T5 is still the newest when
// it comes again.
func TestCoalesce_aTaskThatWasPostponedBeforeItCameHereIsNotOld(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	tenants := s.middleware(t, guardasynq.FromHeader("Tenant"), guardasynq.WithLease(guard.WithName("outer")), guardasynq.WithGroup("tenants"), guardasynq.WithDelay(10*time.Minute))
	coalesce := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce))
	s.serve(t, aqConfig(), tenants(coalesce(w)))
	t.Cleanup(w.release)
	send := func(id, key, tenant string) {
		s.enqueueTask(t, asynq.NewTaskWithHeaders("index", []byte(aqJSON(key, id)), map[string]string{"Tenant": tenant}), asynq.TaskID(id))
	}
	send("T1", "k", "a")
	first := w.next(t)
	send("other", "of tenant c", "c")
	other := w.next(t)
	send("T2", "k", "b")
	s.outcomes.await(t, resultCoalesced, 1)
	send("T5", "k", "c")
	s.awaitState(t, "T5", asynq.TaskStateRetry)
	other.returns(nil)
	s.outcomes.await(t, resultCoalesced, 2)
	first.returns(nil)
	last := w.next(t)
	require.Equal(t, aqJSON("k", "T5"), last.payload)
	last.returns(nil)
	s.awaitEmpty(t)
	w.none(t)
}

// The follow-up comes by itself while the work still runs.
func TestCoalesce_aFollowUpThatFindsItsKeyBusyRemainsOne(t *testing.T) {
	t.Parallel()
	// on its last attempt, asynq would archive it under its own
	for attempts, id := range map[int]string{3: "a", 0: "b"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s, w, _ := aqRacing(t)
			s.send(t, "T1")
			first := w.next(t)
			s.trigger(t, "T2", asynq.MaxRetry(attempts))
			a := s.followUp(t)
			require.NoError(t, s.inspector.RunTask(aqQueue, a))
			if attempts > 0 {
				require.Zero(t, s.awaitState(t, a, asynq.TaskStateRetry).Retried)
			} else {
				s.awaitGone(t, a)
				require.Equal(t, a[:len(a)-1]+id, s.followUp(t))
			}
			s.trigger(t, "T3")
			first.returns(nil)
			w.next(t).returns(nil)
			requireAqRuns(t, s, w, "T1", "T3")
		})
	}
}
