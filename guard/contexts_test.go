package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

type contextKey struct{}

// Nothing tells whether a context was looked at before or after it ended, but that a context derived from it has to be there before.
func TestLease_contextTellsTheSameHoweverLateItIsAsked(t *testing.T) {
	errOwn := errors.New("own")
	ends := map[string]struct {
		end   func(t *testing.T, l *guard.Lease, cancel context.CancelCauseFunc)
		cause error
	}{
		"released": {func(t *testing.T, l *guard.Lease, _ context.CancelCauseFunc) {
			require.NoError(t, l.Release(t.Context()))
		}, guard.ErrReleased},
		"lost": {func(*testing.T, *guard.Lease, context.CancelCauseFunc) {
			time.Sleep(time.Hour)
		}, guard.ErrLost},
		"cancelled by the caller": {func(_ *testing.T, _ *guard.Lease, cancel context.CancelCauseFunc) {
			cancel(errOwn)
		}, errOwn},
		"cancelled by the caller, and released": {func(t *testing.T, l *guard.Lease, cancel context.CancelCauseFunc) {
			cancel(errOwn)
			require.NoError(t, l.Release(context.Background()))
		}, errOwn},
		"released, and cancelled by the caller": {func(t *testing.T, l *guard.Lease, cancel context.CancelCauseFunc) {
			require.NoError(t, l.Release(t.Context()))
			cancel(errOwn)
		}, guard.ErrReleased},
		"lost, and cancelled by the caller": {func(t *testing.T, l *guard.Lease, cancel context.CancelCauseFunc) {
			time.Sleep(time.Hour)
			cancel(errOwn)
		}, guard.ErrLost},
	}
	for name, c := range ends {
		for _, asked := range []string{"early", "late"} {
			t.Run(name+", asked "+asked, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, err := guard.New(memory.New())
					require.NoError(t, err)
					caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "value"))
					defer cancel(nil)
					l, err := g.Acquire(caller, "key", guard.WithMaxHold(time.Minute))
					require.NoError(t, err)
					ctx := l.Context()
					if asked == "early" {
						require.NotNil(t, ctx.Done())
					}
					require.NoError(t, ctx.Err())
					c.end(t, l, cancel)
					synctest.Wait()

					require.ErrorIs(t, ctx.Err(), context.Canceled)
					require.ErrorIs(t, context.Cause(ctx), c.cause)
					<-ctx.Done()
					child, stop := context.WithTimeout(ctx, time.Hour)
					defer stop()
					<-child.Done()
					require.ErrorIs(t, context.Cause(child), c.cause)
					require.ErrorIs(t, ctx.Err(), context.Canceled)
					require.ErrorIs(t, context.Cause(ctx), c.cause)
					require.Equal(t, "value", ctx.Value(contextKey{}))
					_ = l.Release(context.Background())
					require.NoError(t, g.Close(context.Background()))
				})
			})
		}
	}
}

// What is derived from the context of a run ends with it, without a goroutine of its own.
func TestLease_contextEndsWhatIsDerivedFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := guard.New(memory.New())
		require.NoError(t, err)
		var child context.Context
		var after bool
		err = g.Do(t.Context(), "key", func(ctx context.Context) error {
			var cancel context.CancelFunc
			child, cancel = context.WithCancel(ctx)
			context.AfterFunc(ctx, func() { after = true; cancel() })
			require.NoError(t, child.Err())
			return nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, context.Cause(child), guard.ErrReleased)
		synctest.Wait()
		require.True(t, after)
		require.NoError(t, g.Close(t.Context()))
	})
}

const never = 24 * time.Hour

// ways are how a store can learn that a call's context has ended.
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
			return errors.New("it has no deadline")
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

func TestCall_endsHoweverTheStoreLooks(t *testing.T) {
	const timeout = 2 * time.Second
	errOwn := errors.New("own")
	for name, ended := range ways {
		for _, c := range []struct {
			what                string
			grace, cancel, want time.Duration
			err                 error
		}{
			{"at its deadline", 0, never, timeout, context.DeadlineExceeded},
			{"with the caller's", 0, time.Second, time.Second, context.Canceled},
			{"at once, as the caller's has ended", 0, 0, 0, context.Canceled},
			{"at its deadline, with a grace", 50 * time.Millisecond, never, timeout, context.DeadlineExceeded},
			{"a grace after the caller's", 50 * time.Millisecond, time.Second, 1050 * time.Millisecond, context.Canceled},
			{"a grace from now, as the caller's has ended", 50 * time.Millisecond, 0, 50 * time.Millisecond, context.Canceled},
			{"at its deadline, before the grace is over", time.Hour, time.Second, timeout, context.DeadlineExceeded},
		} {
			if name == "deadline" && c.cancel < never {
				continue // it would learn nothing of that
			}
			t.Run(name+": "+c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, err := guard.New(memory.New())
					require.NoError(t, err)
					caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "value"))
					defer cancel(nil)
					if c.cancel == 0 {
						cancel(errOwn)
					}
					ctx, end := guard.NewCall(g, caller, timeout, c.grace)
					time.AfterFunc(c.cancel, func() { cancel(errOwn) })
					start := time.Now()
					require.Equal(t, c.err, ended(ctx))
					took := time.Since(start)
					require.GreaterOrEqual(t, took, c.want)
					require.LessOrEqual(t, took, c.want+2*time.Millisecond) // one that looks at Err does so now and then
					require.Equal(t, "value", ctx.Value(contextKey{}))
					end()
					require.Equal(t, c.err, ctx.Err())
				})
			})
		}
	}
}

func TestCall_isOverWhenItHasReturned(t *testing.T) {
	for _, looked := range []bool{false, true} {
		g, err := guard.New(memory.New())
		require.NoError(t, err)
		ctx, end := guard.NewCall(g, t.Context(), time.Hour, 0)
		if looked {
			require.NotNil(t, ctx.Done())
		}
		require.NoError(t, ctx.Err())
		end()
		require.Equal(t, context.Canceled, ctx.Err())
		<-ctx.Done()
	}
}

func TestCall_hasTheEarlierDeadline(t *testing.T) {
	g, err := guard.New(memory.New())
	require.NoError(t, err)
	caller, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	of := func(grace time.Duration) time.Duration {
		ctx, end := guard.NewCall(g, caller, time.Hour, grace)
		defer end()
		d, ok := ctx.Deadline()
		require.True(t, ok)
		return time.Until(d).Round(time.Minute)
	}
	require.Equal(t, time.Minute, of(0))
	require.Equal(t, time.Hour, of(time.Second), "it does not end with the caller's")
}
