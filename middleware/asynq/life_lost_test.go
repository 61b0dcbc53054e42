package guardasynq_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// lifeErrors returns a change of a Config, after which its ErrorHandler sends the errors.
func lifeErrors() (change func(*asynq.Config), reported chan error) {
	reported = make(chan error, 1000)
	return func(c *asynq.Config) {
		c.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { reported <- err })
	}, reported
}

func TestLost_endsTheHandlersContextAndAsynqGetsWhatItReturned(t *testing.T) {
	t.Parallel()
	failure := errors.New("half done")
	for name, returned := range map[string]error{"an error": failure, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			contexts, causes := make(chan context.Context, 1), make(chan error, 1)
			var runs, retried atomic.Int64
			h := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				if runs.Add(1) > 1 {
					n, _ := asynq.GetRetryCount(ctx)
					retried.Store(int64(n))
					return nil
				}
				contexts <- ctx
				select {
				case <-ctx.Done():
				case <-t.Context().Done():
				}
				causes <- context.Cause(ctx)
				return returned
			})
			change, reported := lifeErrors()
			s.serve(t, s.middleware(t, guardasynq.WithLease(guard.WithTTL(lifeShortTTL)))(h), change)
			s.enqueue(t, "task", "one", asynq.MaxRetry(1))
			lease, ok := guard.FromContext(lifeReceive(t, contexts, "a run"))
			require.True(t, ok)
			held := s.held(t)
			require.Len(t, held, 1)
			require.EqualValues(t, 1, s.store.Client(t).Del(t.Context(), held...).Val())
			require.ErrorIs(t, lifeReceive(t, causes, "the end of the context"), guard.ErrLost)
			require.Zero(t, s.awaitEmpty(t))
			o := s.seen.await(t, resultRan, 1)[0]
			require.ErrorIs(t, o.Err, guard.ErrLost)
			if returned == nil {
				require.EqualValues(t, 1, runs.Load(), "it is done")
				require.Empty(t, reported)
				return
			}
			require.ErrorIs(t, o.Err, failure)
			require.EqualValues(t, 2, runs.Load())
			require.EqualValues(t, 1, retried.Load())
			err := lifeReceive(t, reported, "an error")
			var lost *guard.LostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, guard.LossNotHeld, lost.Reason)
			require.Equal(t, lease.Fence(), lost.Fence)
			require.ErrorIs(t, err, failure)
			require.Empty(t, reported)
		})
	}
}

// The context of the task has ended by then, but the release must not use an ended context.
func TestTimeout_theKeyIsFreeAtOnceWhenTheHandlerReturns(t *testing.T) {
	t.Parallel()
	s := newLifeSite(t)
	var book lifeBook
	h, contexts, gate := lifeHeedless(t, &book)
	s.serve(t, s.middleware(t)(h)) // its TTL is a minute
	s.enqueue(t, "task", "one", asynq.Timeout(time.Second), asynq.MaxRetry(5))
	ctx := lifeReceive(t, contexts, "a run")
	lifeReceive(t, ctx.Done(), "the timeout")
	s.seen.await(t, resultPostponed, 1)
	require.Len(t, s.held(t), 1)
	close(gate)
	returned := time.Now()
	require.Zero(t, s.awaitEmpty(t))
	require.Less(t, time.Since(returned), 30*time.Second, "its TTL need not pass")
	begun, _ := book.runs("one")
	require.Len(t, begun, 2)
	o := s.seen.await(t, resultRan, 1)[0]
	require.NoError(t, o.Err)
}

func TestCrash_freesTheKeyWithinTheTTL(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	s := newLifeStorm(t)
	s.config.TTL = ttl
	p := s.process(t, "killed")
	p.Says("ready")
	s.enqueue(t, 1, lifeTask{Kind: "long blind", Work: 100})
	lifeUntil(t, "it holds the key", func() bool { return len(s.resource.open(t, p.name)) == 1 })
	p.Kill()
	require.EqualError(t, p.Wait(), "signal: killed")
	killed := time.Now()
	var book lifeBook
	s.serve(t, s.middleware(t)(book.keep(func(context.Context, *asynq.Task) error { return nil })))
	s.enqueue(t, 1, lifeTask{})
	book.awaitRuns(t, "customer 1", 1)
	begun, _ := book.runs("customer 1")
	require.Equal(t, "task 1", begun[0].task)
	after := begun[0].at.Sub(killed)
	require.Less(t, after, ttl+10*time.Second, "nobody had to wait for asynq, which takes a minute")
	require.NotEmpty(t, s.seen.of(resultPostponed))
	require.Equal(t, asynq.TaskStateActive, s.info(t, "task 0").State)
	t.Logf("%v after the kill, with a TTL of %v", after, ttl)
}

func TestPanic_orTheEndOfTheGoroutineLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var runs atomic.Int64
			change, reported := lifeErrors()
			s.serve(t, s.middleware(t)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				if runs.Add(1) == 1 {
					end()
				}
				return nil
			})), change)
			// if the goroutine has gone, asynq waits for the timeout
			s.enqueue(t, "first", "one", asynq.MaxRetry(1), asynq.Timeout(3*time.Second))
			o := s.seen.await(t, resultRan, 1)[0]
			require.True(t, o.Aborted)
			require.Empty(t, s.held(t), "the key is free")
			s.enqueue(t, "second", "one")
			begun := time.Now()
			require.Zero(t, s.awaitEmpty(t))
			require.Less(t, time.Since(begun), 30*time.Second)
			require.EqualValues(t, 3, runs.Load(), "the first is run again")
			err := lifeReceive(t, reported, "the end of the first run")
			if name == "panic" {
				require.True(t, asynq.IsPanicError(err))
				require.ErrorContains(t, err, "boom")
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.Empty(t, reported)
		})
	}
}
