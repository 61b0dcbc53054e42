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
	"github.com/seed-1795987d/onerun/guard/driver"
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
	failure := errors.New("half done")
	for name, returned := range map[string]error{"an error": failure, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m, end := b.middleware(byCustomer)
				defer end()
				var fence uint64
				h := m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					lease, ok := guard.FromContext(ctx)
					require.True(t, ok)
					fence = lease.Fence()
					_, err := b.Release(t.Context(), lease.Claims()[0], driver.After{})
					require.NoError(t, err)
					<-ctx.Done() // after the next renewal
					require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
					return returned
				}))
				err := <-b.deliver(h, lifeTask{Customer: "c"}, 30*time.Minute)
				o := b.seen.of(resultRan)[0]
				require.ErrorIs(t, o.Err, guard.ErrLost)
				if returned == nil {
					require.NoError(t, err, "it is done")
					return
				}
				require.ErrorIs(t, o.Err, failure)
				var lost *guard.LostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, guard.LossNotHeld, lost.Reason)
				require.Equal(t, fence, lost.Fence)
				require.ErrorIs(t, err, failure)
				var config asynq.Config
				require.True(t, guardasynq.Configure(config).IsFailure(err), "it costs an attempt")
			})
		})
	}
}

func TestCrash_freesTheKeyWithinTheTTL(t *testing.T) {
	t.Parallel()
	s := newLifeStorm(t)
	s.config.TTL = 3 * time.Second
	p := s.process(t, "killed")
	p.Says("ready")
	s.enqueue(t, 1, lifeTask{Kind: "long blind", Work: 100})
	lifeUntil(t, "it holds the key", func() bool { return len(s.resource.open(t, p.name)) == 1 })
	var book lifeBook
	s.serve(t, s.middleware(t)(book.keep(func(context.Context, *asynq.Task) error { return nil })))
	s.enqueue(t, 1, lifeTask{})
	s.seen.await(t, resultPostponed, 1)
	p.Kill()
	require.EqualError(t, p.Wait(), "signal: killed")
	book.awaitRuns(t, "customer 1", 1)
	begun, _ := book.runs("customer 1")
	require.Equal(t, "task 1", begun[0].task)
	require.Equal(t, asynq.TaskStateActive, s.info(t, "task 0").State, "asynq itself takes a minute to find what was lost")
}

func TestPanic_orTheEndOfTheGoroutineLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLifeSite(t)
			var runs atomic.Int64
			timeout := newLifeTimeout()
			change, reported := lifeErrors()
			s.serve(t, s.middleware(t)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				if runs.Add(1) == 1 {
					end()
				}
				return nil
			})), change, timeout.config)
			s.enqueue(t, "first", "one", asynq.MaxRetry(1))
			o := s.seen.await(t, resultRan, 1)[0]
			require.True(t, o.Aborted)
			require.Empty(t, s.held(t), "the key is free")
			close(timeout.over) // asynq waits for it if the goroutine has gone
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
