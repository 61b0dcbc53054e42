package guardasynq_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// enders are the policies that end a task whose key is busy.
var enders = map[string]guardasynq.BusyPolicy{"Skip": guardasynq.Skip, "Fail": guardasynq.Fail}

// A groupSite has a holder of the key "k" in another process, and tasks of the same group that look
// whether the key is free.
type groupSite struct {
	*aqSite
	t   *testing.T
	end func() // ends the holder's run, and returns when the key is free

	mu     sync.Mutex
	free   bool // no run has the key, and no task has asked for it
	judged bool
}

// looks is called whenever the middleware looks at a key, or takes one beside that of a run. The
// first time that no run has the key, it requires that tasks which would end if it were busy run.
func (s *groupSite) looks(e guard.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.free || s.judged || strings.HasSuffix(e.Key, ":follow-up") {
		return
	}
	s.judged = true
	for name, busy := range enders {
		ran := false
		m := s.middleware(s.t, guardasynq.FromJSON("key"), guardasynq.WithGroup("group"), guardasynq.WithBusy(busy))
		err := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			ran = true
			return nil
		})).ProcessTask(context.Background(), asynq.NewTask("other", []byte(aqJSON("k", name))))
		assert.True(s.t, ran && err == nil, "nothing runs, and a task with %s did not run either: %v", name, err)
	}
}

// hold begins the holder's run.
func (s *groupSite) hold() {
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := s.middleware(s.t, guardasynq.FromJSON("key"), guardasynq.WithGroup("group"))
	go func() {
		defer close(ended)
		_ = m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			close(begun)
			<-end
			return nil
		})).ProcessTask(context.Background(), asynq.NewTask("holder", []byte(aqJSON("k", "holder"))))
	}()
	<-begun
	s.end = sync.OnceFunc(func() {
		s.mu.Lock() // nothing looks between the release and the note of it
		defer s.mu.Unlock()
		close(end)
		<-ended
		s.free = true
	})
	s.t.Cleanup(s.end)
}

func TestGroup_aTaskThatLooksAtTheKeyEndsNoOther(t *testing.T) {
	t.Parallel()
	busy := func(e guard.AcquireEvent) bool { return errors.Is(e.Err, guard.ErrBusy) }
	changing := func(e guard.AcquireEvent) bool { return strings.HasSuffix(e.Key, ":follow-up") }
	for name, c := range map[string]struct {
		policy   guardasynq.BusyPolicy
		attempts int
		// whether the holder's run ends at an acquire; nil ends it when the task is postponed
		ends func(e guard.AcquireEvent) bool
	}{
		"postponed":           {guardasynq.Requeue, 3, nil},
		"postponed, a copy":   {guardasynq.Requeue, 0, busy},
		"a follow-up":         {guardasynq.Coalesce, 3, changing},
		"a follow-up, a copy": {guardasynq.Coalesce, 0, changing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := &groupSite{aqSite: newAqSite(t), t: t}, newAqWork(t)
			g := s.newGuard(t, guard.WithHook(guard.Hook{
				AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
					if c.ends != nil && c.ends(e) {
						s.end()
					}
					if e.Purpose == guard.PurposeAuxiliary {
						s.looks(e.Event)
					}
				},
				Call: func(_ context.Context, e guard.CallEvent) {
					if e.Op == driver.OpInspect {
						s.looks(e.Event)
					}
				},
			}))
			s.hold()
			m := s.middlewareOf(t, g, guardasynq.FromJSON("key"), guardasynq.WithGroup("group"), guardasynq.WithWait(0),
				guardasynq.WithBusy(c.policy), guardasynq.WithDelay(10*time.Minute))
			s.serve(t, aqConfig(), m(w))
			t.Cleanup(w.release)
			s.enqueue(t, "import", aqJSON("k", "1"), asynq.MaxRetry(c.attempts))
			if c.ends == nil {
				s.outcomes.await(t, resultPostponed, 1)
				s.end()
			}
			w.next(t).returns(nil)
			s.awaitEmpty(t)
			require.True(t, s.judged, "the middleware never looked at the free key")
		})
	}
}

// A task with a key and WithOnce has the lease of WithOnce while it asks for its key. If it gets
// none, it does not run, and a repeat that has come meanwhile must.
func TestOnce_aTaskThatOnlyAsksForItsKeyEndsNoRepeat(t *testing.T) {
	for name, locker := range map[string]func() guard.Locker{
		"":                         func() guard.Locker { return memory.New() },
		", no key can be shown":    func() guard.Locker { return struct{ guard.Locker }{memory.New()} },
		", another customer's key": func() guard.Locker { return memory.New() },
	} {
		for policy, busy := range enders {
			t.Run(policy+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					repeatAsksBeside(t, locker(), busy, strings.Contains(name, "another"))
				})
			})
		}
	}
}

func repeatAsksBeside(t *testing.T, locker guard.Locker, busy guardasynq.BusyPolicy, otherKey bool) {
	t.Helper()
	var seen aqLog
	work := func(n int, customer string) lifeTask { return lifeTask{Customer: customer, Work: n} }
	var asks func() // called when the first delivery of the work has found its key busy
	middleware := func(opts ...guard.Option) asynq.MiddlewareFunc {
		g, err := guard.New(locker, append(opts, guard.WithNamespace("test"))...)
		require.NoError(t, err)
		noQueue := asynq.RedisClientOpt{Addr: "127.0.0.1:1"}
		client, inspector := asynq.NewClient(noQueue), asynq.NewInspector(noQueue)
		t.Cleanup(func() {
			require.NoError(t, errors.Join(g.Close(context.Background()), client.Close(), inspector.Close()))
		})
		m, err := guardasynq.New(g, byCustomer, guardasynq.WithClient(client, inspector), guardasynq.WithBusy(busy),
			guardasynq.WithOnce(time.Hour, guardasynq.FromJSON("work")), aqObserve(seen.add))
		require.NoError(t, err)
		return m
	}
	elsewhere := middleware()
	here := middleware(guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
		if errors.Is(e.Err, guard.ErrBusy) {
			asks()
		}
	}}))
	begun, end := make(chan struct{}), make(chan struct{})
	holder := make(chan error, 1)
	go func() {
		holder <- elsewhere(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			close(begun)
			<-end
			return nil
		})).ProcessTask(context.Background(), newLifeTask(t, work(1, "c")))
	}()
	<-begun
	customer := "c"
	if otherKey {
		customer = "d"
	}
	runs := 0
	repeat := func() error {
		return elsewhere(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			runs++
			return nil
		})).ProcessTask(context.Background(), newLifeTask(t, work(2, customer)))
	}
	asks = func() {
		asks = func() {}
		close(end)
		require.NoError(t, <-holder)
		var postponed *guardasynq.PostponedError
		require.ErrorAs(t, repeat(), &postponed, "nothing runs")
		require.ErrorIs(t, postponed, guard.ErrBusy)
	}
	_ = here(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("its key was busy") })).ProcessTask(context.Background(), newLifeTask(t, work(2, "c")))
	require.NoError(t, repeat(), "asynq brings it back")
	require.Equal(t, 1, runs)
	require.Len(t, append(seen.of(resultSkipped), seen.of(resultBusy)...), 1, "only the task that found its key busy")
}

// A repeat that comes while the first one runs is not postponed.
func TestOnce_aRepeatBesideARunEnds(t *testing.T) {
	for policy, busy := range enders {
		t.Run(policy, func(t *testing.T) {
			s, w, run := aqHolding(t, aqConfig(), guardasynq.WithBusy(busy), guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()))
			s.enqueue(t, "import", run.payload, asynq.MaxRetry(0))
			result := map[guardasynq.BusyPolicy]string{guardasynq.Skip: resultSkipped, guardasynq.Fail: resultBusy}[busy]
			s.outcomes.await(t, result, 1)
			run.returns(nil)
			s.awaitEmpty(t)
			require.Len(t, w.payloads(), 1)
		})
	}
}
