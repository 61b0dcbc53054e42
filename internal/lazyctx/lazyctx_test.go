package lazyctx_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

type contextKey struct{}

// call returns the context of a call that begins now, and a function that ends it.
func call(parent context.Context, timeout, grace time.Duration) (ctx context.Context, end func()) {
	c := lazyctx.NewCall(parent, time.Now().Add(timeout), grace)
	return c, func() { c.End(nil) }
}

const never = 24 * time.Hour

// ways are the ways in which a backend can notice that a call's context has ended.
var ways = map[string]func(ctx context.Context) error{
	"done": func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	},
	"error": func(ctx context.Context) error {
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		<-ctx.Done()
		return ctx.Err()
	},
	"deadline": func(ctx context.Context) error {
		d, ok := ctx.Deadline()
		if !ok {
			return errors.New("the context has no deadline")
		}
		time.Sleep(time.Until(d))
		<-ctx.Done()
		return ctx.Err()
	},
	"derived": func(ctx context.Context) error {
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-child.Done()
		return child.Err()
	},
}

func TestCall_endsOnTimeHoweverTheBackendNotices(t *testing.T) {
	const timeout = 2 * time.Second
	errOwn := errors.New("own")
	for name, ended := range ways {
		for _, c := range []struct {
			what                string
			grace, cancel, want time.Duration
			err                 error
		}{
			{"at its deadline", 0, never, timeout, context.DeadlineExceeded},
			{"with the caller's context", 0, time.Second, time.Second, context.Canceled},
			{"at once, because the caller's context has ended", 0, 0, 0, context.Canceled},
			{"at its deadline, with a grace period", 50 * time.Millisecond, never, timeout, context.DeadlineExceeded},
			{"a grace period after the end of the caller's context", 50 * time.Millisecond, time.Second, 1050 * time.Millisecond, context.Canceled},
			{"a grace period from now, because the caller's context has ended", 50 * time.Millisecond, 0, 50 * time.Millisecond, context.Canceled},
			{"at its deadline, before the grace period is over", time.Hour, time.Second, timeout, context.DeadlineExceeded},
		} {
			if name == "deadline" && c.cancel < never {
				continue // the deadline does not show a cancellation
			}
			t.Run(name+": "+c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "value"))
					defer cancel(nil)
					if c.cancel == 0 {
						cancel(errOwn)
					}
					ctx, end := call(caller, timeout, c.grace)
					time.AfterFunc(c.cancel, func() { cancel(errOwn) })
					start := time.Now()
					require.Equal(t, c.err, ended(ctx))
					took := time.Since(start)
					require.GreaterOrEqual(t, took, c.want)
					// The function that polls Err notices the end up to a millisecond late.
					require.LessOrEqual(t, took, c.want+2*time.Millisecond)
					require.Equal(t, "value", ctx.Value(contextKey{}))
					end()
					require.Equal(t, c.err, ctx.Err())
				})
			})
		}
	}
}

func TestCall_isOverWhenItHasReturned(t *testing.T) {
	for _, used := range []bool{false, true} {
		ctx, end := call(t.Context(), time.Hour, 0)
		if used {
			require.NotNil(t, ctx.Done())
		}
		require.NoError(t, ctx.Err())
		end()
		require.Equal(t, context.Canceled, ctx.Err())
		<-ctx.Done()
	}
}

func TestCall_hasTheEarlierDeadline(t *testing.T) {
	caller, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	deadline := func(grace time.Duration) time.Duration {
		ctx, end := call(caller, time.Hour, grace)
		defer end()
		d, ok := ctx.Deadline()
		require.True(t, ok)
		return time.Until(d).Round(time.Minute)
	}
	require.Equal(t, time.Minute, deadline(0))
	require.Equal(t, time.Hour, deadline(time.Second), "with a grace period, the caller's deadline does not apply")
}
