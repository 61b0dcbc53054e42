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

// A lease creates its context lazily. Its error and its cause must be the same whether the context
// is first used before or after it ends.
func TestLease_contextHasTheSameCauseWheneverItIsRead(t *testing.T) {
	errOwn := errors.New("own")
	ends := map[string]struct {
		end   func(t *testing.T, l *guard.Lease, cancel context.CancelCauseFunc)
		cause error
	}{
		"released": {func(t *testing.T, l *guard.Lease, _ context.CancelCauseFunc) {
			require.NoError(t, l.Release(t.Context()))
		}, guard.ErrReleased},
		"lost":                    {func(*testing.T, *guard.Lease, context.CancelCauseFunc) { time.Sleep(time.Hour) }, guard.ErrLost},
		"cancelled by the caller": {func(_ *testing.T, _ *guard.Lease, cancel context.CancelCauseFunc) { cancel(errOwn) }, errOwn},
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
		for _, used := range []string{"early", "late"} {
			inTimeOf(t, name+", used "+used, func(t *testing.T) {
				g := newGuard(t, memory.New())
				caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "value"))
				defer cancel(nil)
				l, err := g.Acquire(caller, "key", guard.WithMaxHold(time.Minute))
				require.NoError(t, err)
				ctx := l.Context()
				if used == "early" {
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
			})
		}
	}
}

// A context that is derived from the run's context ends with it, and needs no goroutine.
func TestLease_contextEndsWhatIsDerivedFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGuard(t, memory.New())
		var child context.Context
		cancel := context.CancelFunc(func() {})
		defer func() { cancel() }() // not in after, which may come before the child's end
		var after bool
		err := g.Do(t.Context(), "key", func(ctx context.Context) error {
			child, cancel = context.WithCancel(ctx)
			context.AfterFunc(ctx, func() { after = true })
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
