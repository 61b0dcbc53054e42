package guardasynq_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A lifeTimeout is the context of a server's first delivery, which times out when the test says so.
// Later ones have all the time that they need on a busy machine.
type lifeTimeout struct {
	context.Context
	first atomic.Bool
	over  chan struct{}
}

func newLifeTimeout() *lifeTimeout {
	return &lifeTimeout{Context: context.Background(), over: make(chan struct{})}
}

// config is a change of a server's Config.
func (l *lifeTimeout) config(c *asynq.Config) {
	c.BaseContext = func() context.Context {
		if l.first.Swap(true) {
			return context.Background()
		}
		return l
	}
}

func (l *lifeTimeout) Done() <-chan struct{} { return l.over }

func (l *lifeTimeout) Err() error {
	select {
	case <-l.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// lifeHeedless returns a handler that does not heed its context: the first run goes on until the
// gate is open, and later ones end at once.
func lifeHeedless(t *testing.T, book *lifeBook) (h asynq.Handler, contexts chan context.Context, gate chan struct{}) {
	contexts, gate = make(chan context.Context, 10), make(chan struct{})
	return book.keep(func(ctx context.Context, _ *asynq.Task) error {
		contexts <- ctx
		if begun, _ := book.runs("one"); len(begun) > 1 {
			return nil
		}
		select {
		case <-gate:
		case <-t.Context().Done():
		}
		return nil
	}), contexts, gate
}

// requireOneRun requires that the run with ctx has its lease although asynq has given the task up,
// until the handler returns, and that the task runs again then. TTLs are a minute.
func (s *lifeSite) requireOneRun(t *testing.T, ctx context.Context, book *lifeBook, gate chan struct{}) {
	t.Helper()
	lease, ok := guard.FromContext(ctx)
	require.True(t, ok)
	s.seen.await(t, resultPostponed, 1)
	require.True(t, lease.Valid())
	begun, ended := book.runs("one")
	require.Len(t, begun, 1)
	require.Empty(t, ended)
	close(gate)
	returned := time.Now()
	book.awaitRuns(t, "one", 2)
	require.Zero(t, s.awaitEmpty(t))
	require.Less(t, time.Since(returned), 30*time.Second, "its TTL need not pass")
	require.NoError(t, s.seen.await(t, resultRan, 1)[0].Err)
	require.Equal(t, 1, book.together())
	require.False(t, lease.Valid())
	begun, ended = book.runs("one")
	require.Len(t, begun, 2)
	require.Equal(t, begun[0].task, begun[1].task)
	require.False(t, begun[1].at.Before(ended[0].at))
}

// The lease of a handler that does not heed its context outlasts any TTL, until it returns.
func TestTimeout_theLeaseIsRenewedUntilTheHandlerReturns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, end := b.middleware(byCustomer)
		defer end()
		gate, fences := make(chan struct{}), []uint64{}
		h := m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			fences = append(fences, guard.Fence(ctx))
			if len(fences) > 1 {
				return nil
			}
			<-gate
			require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
			return nil
		}))
		first := b.deliver(h, lifeTask{Customer: "c"}, 2*time.Second)
		synctest.Wait()
		for range 60 {
			time.Sleep(5 * time.Second) // virtual time
			require.ErrorIs(t, <-b.deliver(h, lifeTask{Customer: "c"}, time.Minute), guard.ErrBusy)
		}
		close(gate)
		require.NoError(t, <-first)
		require.NoError(t, <-b.deliver(h, lifeTask{Customer: "c"}, time.Minute), "the key is free at once")
		require.IsIncreasing(t, fences)
		require.Len(t, fences, 2)
	})
}

func TestTimeout_asynqAloneRunsATaskTwiceAtOnce(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	h, contexts, gate := lifeHeedless(t, &book)
	s.serve(t, h)
	s.enqueue(t, "task", "one", asynq.Timeout(time.Second), asynq.MaxRetry(5))
	ctx := lifeReceive(t, contexts, "the first run")
	lifeReceive(t, contexts, "the second run")
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.Equal(t, 2, book.together())
	close(gate)
	require.Zero(t, s.awaitEmpty(t))
}

func TestTimeout_leavesTheKeyBusyUntilTheHandlerReturns(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"retries left": 5, "the next is the last attempt": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var book lifeBook
			h, contexts, gate := lifeHeedless(t, &book)
			timeout := newLifeTimeout()
			s.serve(t, s.middleware(t)(h), timeout.config)
			s.enqueue(t, "task", "one", asynq.MaxRetry(retries))
			ctx := lifeReceive(t, contexts, "the first run")
			close(timeout.over)
			lifeReceive(t, ctx.Done(), "the timeout")
			require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
			s.requireOneRun(t, ctx, &book, gate)
			second := lifeReceive(t, contexts, "the second run")
			require.Greater(t, guard.Fence(second), guard.Fence(ctx))
		})
	}
}

// asynq takes a task back whose lease has ended, while its handler goes on. Another server
// finds the key busy.
func TestTimeout_aTaskThatAsynqTakesBackLeavesTheKeyBusyUntilTheHandlerReturns(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	h, contexts, gate := lifeHeedless(t, &book)
	guarded := s.middleware(t)(h)
	s.serve(t, guarded)
	s.enqueue(t, "task", "one", asynq.MaxRetry(5))
	ctx := lifeReceive(t, contexts, "the first run")
	s.ageLease(t, s.queue.Client(t), "task")
	s.serve(t, guarded)
	s.requireOneRun(t, ctx, &book, gate)
}

func TestTimeout_aShutdownLeavesTheKeyBusyUntilTheHandlerReturns(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"retries left": 5, "last attempt": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var book lifeBook
			h, contexts, gate := lifeHeedless(t, &book)
			guarded := s.middleware(t)(h)
			first := s.serve(t, guarded, func(c *asynq.Config) { c.ShutdownTimeout = 100 * time.Millisecond })
			s.enqueue(t, "task", "one", asynq.MaxRetry(retries))
			ctx := lifeReceive(t, contexts, "the first run")
			first.Shutdown()
			lifeReceive(t, ctx.Done(), "the end of its context")
			s.serve(t, guarded)
			s.requireOneRun(t, ctx, &book, gate)
		})
	}
}
