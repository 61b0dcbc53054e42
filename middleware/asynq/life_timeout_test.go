package guardasynq_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// lifeShortTTL is shorter than handlers go on here, and longer than a busy machine keeps a renewal
// waiting.
const lifeShortTTL = 2 * time.Second

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

// requireOneRun requires that the lease of the run with ctx holds for longer than its TTL,
// although asynq has given the task up, until the handler returns, and that the task runs again
// then.
func (s *lifeSite) requireOneRun(t *testing.T, ctx context.Context, book *lifeBook, gate chan struct{}) {
	t.Helper()
	require.Error(t, ctx.Err())
	lease := s.requireHeld(t, ctx, book)
	s.seen.await(t, resultPostponed, 1)
	begun, ended := book.runs("one")
	require.Len(t, begun, 1)
	require.Empty(t, ended)
	close(gate)
	book.awaitRuns(t, "one", 2)
	require.Zero(t, s.awaitEmpty(t))
	require.Equal(t, 1, book.together())
	require.False(t, lease.Valid())
	begun, ended = book.runs("one")
	require.Len(t, begun, 2)
	require.Equal(t, begun[0].task, begun[1].task)
	require.False(t, begun[1].at.Before(ended[0].at))
}

// requireHeld requires that the lease of the run with ctx holds for longer than its TTL.
// It returns the lease.
func (s *lifeSite) requireHeld(t *testing.T, ctx context.Context, book *lifeBook) *guard.Lease {
	t.Helper()
	lease, ok := guard.FromContext(ctx)
	require.True(t, ok)
	// the time of two leases has to pass
	for end := time.Now().Add(2 * lifeShortTTL); time.Now().Before(end); time.Sleep(lifePoll) {
		require.True(t, lease.Valid())
		require.Equal(t, 1, book.together())
	}
	return lease
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
			s.serve(t, s.middleware(t, guardasynq.WithLease(guard.WithTTL(lifeShortTTL)))(h))
			// asynq archives a task whose worker needs longer than that for the second delivery
			s.enqueue(t, "task", "one", asynq.Timeout(2*time.Second), asynq.MaxRetry(retries))
			ctx := lifeReceive(t, contexts, "the first run")
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
	guarded := s.middleware(t, guardasynq.WithLease(guard.WithTTL(lifeShortTTL)))(h)
	s.serve(t, guarded)
	s.enqueue(t, "task", "one", asynq.MaxRetry(5))
	ctx := lifeReceive(t, contexts, "the first run")
	s.ageLease(t, s.queue.Client(t), "task")
	s.serve(t, guarded)
	s.seen.await(t, resultPostponed, 1)
	s.requireHeld(t, ctx, &book)
	close(gate)
	book.awaitRuns(t, "one", 2)
	require.Zero(t, s.awaitEmpty(t))
	require.Equal(t, 1, book.together())
}

// asynq's own lease is 30 s long. Its Redis refuses to write, as it has no memory left, so that no
// heartbeat can prolong it; the guard's is another Redis.
func TestLong_aLostLeaseOfAsynqLeavesTheKeyBusyUntilTheHandlerReturns(t *testing.T) {
	redistest.Long(t)
	s := newLifeSite(t)
	var book lifeBook
	h, contexts, gate := lifeHeedless(t, &book)
	guarded := s.middleware(t, guardasynq.WithLease(guard.WithTTL(3*lifeShortTTL)))(h)
	s.serve(t, guarded)
	s.enqueue(t, "task", "one", asynq.MaxRetry(5))
	ctx := lifeReceive(t, contexts, "the first run")
	begun := time.Now()
	admin := s.queue.Client(t)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	lifeReceive(t, ctx.Done(), "the end of asynq's lease")
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
	require.GreaterOrEqual(t, time.Since(begun), 20*time.Second)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Equal(t, asynq.TaskStateActive, s.info(t, "task").State, "asynq leaves it to its recoverer")
	for time.Since(begun) < 61*time.Second {
		require.Equal(t, 1, book.together())
		// the recoverer takes what was lost half a minute ago, when a server starts
		time.Sleep(time.Second)
	}
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
			guarded := s.middleware(t, guardasynq.WithLease(guard.WithTTL(lifeShortTTL)))(h)
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
