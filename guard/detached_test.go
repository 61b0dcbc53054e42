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

// The end of the caller's context bounds the wait, and not the run. All other ends are those of
// every run.
func TestDetached_theCallerBoundsTheWaitAlone(t *testing.T) {
	errOwn := errors.New("own")
	for name, c := range map[string]struct {
		taken bool // another call holds the key for an hour
		run   func(ctx context.Context, g *guard.Guard, cancel context.CancelCauseFunc) error
		want  error
		ran   bool
	}{
		"ended before": {want: context.Canceled, run: nil},
		"ended while it waits": {taken: true, want: context.Canceled, run: func(context.Context, *guard.Guard, context.CancelCauseFunc) error {
			return errors.New("the function ran")
		}},
		"ended while it runs": {ran: true, run: func(ctx context.Context, _ *guard.Guard, cancel context.CancelCauseFunc) error {
			cancel(errOwn)
			time.Sleep(time.Hour)
			_, limited := ctx.Deadline()
			if limited {
				return errors.New("the context has the deadline of the caller")
			}
			return ctx.Err()
		}},
		"ended, and the function failed": {ran: true, want: context.Canceled, run: func(_ context.Context, _ *guard.Guard, cancel context.CancelCauseFunc) error {
			cancel(errOwn)
			return context.Canceled
		}},
		"ended inside of a nested call": {ran: true, run: func(ctx context.Context, g *guard.Guard, cancel context.CancelCauseFunc) error {
			nested, stop := context.WithCancel(ctx)
			return g.Do(nested, "key", func(ctx context.Context) error {
				cancel(errOwn)
				stop()
				synctest.Wait()
				return ctx.Err()
			}, g.Adapter().Detached())
		}},
		"lost": {ran: true, want: guard.ErrLost, run: func(ctx context.Context, g *guard.Guard, cancel context.CancelCauseFunc) error {
			cancel(errOwn)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), guard.ErrLost) {
				return errors.New("the cause is not the loss")
			}
			return nil
		}},
		"the Guard was closed": {ran: true, want: guard.ErrClosed, run: func(ctx context.Context, g *guard.Guard, cancel context.CancelCauseFunc) error {
			cancel(errOwn)
			now, end := context.WithCancel(context.Background())
			end()
			_ = g.Close(now)
			<-ctx.Done()
			return nil
		}},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			g := newGuard(t, memory.New())
			if c.taken {
				l, err := g.Acquire(t.Context(), "key")
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Release(context.Background())) }()
			}
			caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "value"))
			defer cancel(nil)
			if c.run == nil {
				cancel(errOwn)
			}
			if c.taken {
				time.AfterFunc(time.Minute, func() { cancel(errOwn) })
			}
			limited, end := context.WithTimeout(caller, 30*time.Minute)
			defer end()
			ran := false
			start := time.Now()
			err := g.Do(limited, "key", func(ctx context.Context) error {
				ran = true
				require.Equal(t, "value", ctx.Value(contextKey{}))
				return c.run(ctx, g, cancel)
			}, g.Adapter().Detached(), guard.WithWait(time.Hour), guard.WithMaxHold(2*time.Hour))
			require.Equal(t, c.ran, ran)
			if c.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.want)
			}
			if c.taken {
				require.Equal(t, time.Minute, time.Since(start), "the wait ends with the caller")
			}
			if c.ran && !errors.Is(err, guard.ErrClosed) && !errors.Is(err, guard.ErrLost) {
				require.NoError(t, g.Do(t.Context(), "key", func(context.Context) error { return nil }), "the key is free")
			}
		})
	}
}

// A lease of Acquire goes on without its caller, also one that joins.
func TestDetached_aLeaseGoesOnWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, memory.New())
		caller, cancel := context.WithCancel(t.Context())
		l, err := g.Acquire(caller, "key", g.Adapter().Detached())
		require.NoError(t, err)
		inner, stop := context.WithCancel(l.Context())
		joined, err := g.Acquire(inner, "key", g.Adapter().Detached())
		require.NoError(t, err)
		cancel()
		stop()
		time.Sleep(time.Hour)
		require.NoError(t, joined.Context().Err())
		require.NoError(t, joined.Release(t.Context()))
		require.NoError(t, l.Context().Err())
		require.True(t, l.Valid())
		require.NoError(t, l.Release(t.Context()))
		require.ErrorIs(t, context.Cause(l.Context()), guard.ErrReleased)
	})
}
