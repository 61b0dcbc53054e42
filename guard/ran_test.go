package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// Every error of Do says whether the function ran. errors.Is finds no other sentinel in it than
// the expected one.
func TestRan_isCorrectForEveryErrorOfDo(t *testing.T) {
	mine := errors.New("mine")
	sentinels := []error{guard.ErrBusy, guard.ErrDone, guard.ErrLost, guard.ErrClosed, guard.ErrStore, guard.ErrMarker}
	for name, c := range map[string]struct {
		do func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error
		is error // of the sentinels, or nil
	}{
		"success": {do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			return g.Do(t.Context(), "k", f)
		}},
		"the function's own error": {do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			return g.Do(t.Context(), "k", func(ctx context.Context) error { return errors.Join(f(ctx), mine) })
		}},
		"the error of another call": {is: guard.ErrBusy, do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.acquireElsewhere(t, time.Hour)
			return g.Do(t.Context(), "outer", func(ctx context.Context) error {
				_ = f(ctx)
				return g.Do(ctx, "k", nothing)
			})
		}},
		"busy": {is: guard.ErrBusy, do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.acquireElsewhere(t, time.Hour)
			return g.Do(t.Context(), "k", f)
		}},
		"busy after a wait": {is: guard.ErrBusy, do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.acquireElsewhere(t, time.Hour)
			return g.Do(t.Context(), "k", f, guard.WithWait(time.Second))
		}},
		"done": {is: guard.ErrDone, do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithOnce(time.Hour)))
			return g.Do(t.Context(), "k", f)
		}},
		"lost": {is: guard.ErrLost, do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			return g.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return f(ctx) }, guard.WithoutRenewal())
		}},
		"lost before the call": {is: guard.ErrLost, do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) (err error) {
			_ = g.Do(t.Context(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				err = g.Do(context.WithoutCancel(ctx), "k", f)
				return nil
			}, guard.WithoutRenewal())
			return err
		}},
		"closed": {is: guard.ErrClosed, do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			require.NoError(t, g.Close(t.Context()))
			return g.Do(t.Context(), "k", f)
		}},
		"closed while it waits": {is: guard.ErrClosed, do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.acquireElsewhere(t, time.Hour)
			time.AfterFunc(time.Second, func() { _ = g.Close(context.Background()) })
			return g.Do(t.Context(), "k", f, guard.WithWait(time.Hour))
		}},
		"revoked by Close": {is: guard.ErrClosed, do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			time.AfterFunc(time.Second, func() { _ = g.Close(ended) })
			return g.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return f(ctx) })
		}},
		"the store cannot be asked": {is: guard.ErrStore, do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.OnAcquire = failing(guardtest.Fail(driver.KindConnection))
			return g.Do(t.Context(), "k", f)
		}},
		"the marker may be missing": {is: guard.ErrMarker, do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.failReleasesFor(time.Minute)
			return g.Do(t.Context(), "k", f, guard.WithOnce(time.Hour))
		}},
		"cancelled": {do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(mine)
			return g.Do(ctx, "k", f)
		}},
		"cancelled while it waits": {do: func(t *testing.T, g *guard.Guard, store *testStore, f func(context.Context) error) error {
			store.acquireElsewhere(t, time.Hour)
			ctx := within(t, time.Second)
			return g.Do(ctx, "k", f, guard.WithWait(time.Hour))
		}},
		"a bad key": {do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			return g.Do(t.Context(), "", f)
		}},
		"a bad option": {do: func(t *testing.T, g *guard.Guard, _ *testStore, f func(context.Context) error) error {
			return g.Do(t.Context(), "k", f, guard.WithWait(-1))
		}},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			store := newTestStore()
			g, err := guard.New(store, guard.WithTTL(ttl))
			require.NoError(t, err)
			ran := false
			err = c.do(t, g, store, func(context.Context) error { ran = true; return nil })
			require.Equal(t, ran, guard.Ran(err), "%v", err)
			require.Equal(t, ran, guard.Ran(fmt.Errorf("wrapped: %w", err)))
			for _, sentinel := range sentinels {
				require.Equal(t, errors.Is(c.is, sentinel), errors.Is(err, sentinel), "errors.Is(%v, %v)", err, sentinel)
			}
			_ = closeWithin(t, g, time.Minute)
		})
	}
}

// If the function returns the cause of its context, the error does not repeat it.
func TestLoss_isNotPrintedTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		err := g.Do(t.Context(), "k", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, guard.WithoutRenewal())
		require.ErrorIs(t, err, guard.ErrLost)
		require.Equal(t, 1, strings.Count(err.Error(), "was lost"), err.Error())
	})
}

// The zero value of an option switches off what New has set.
func TestOptions_zeroIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTestStore()
		g, err := guard.New(store, guard.WithTTL(ttl), guard.WithOnce(time.Hour), guard.WithMinHold(time.Minute),
			guard.WithMaxHold(time.Hour), guard.WithWait(time.Minute), guard.WithName("name"), guard.WithNamespace("ns"),
			guard.WithOwner("owner"), guard.WithLabel("label"))
		require.NoError(t, err)
		off := []guard.Option{
			guard.WithOnce(0), guard.WithMinHold(0), guard.WithMaxHold(0), guard.WithWait(0), guard.WithName(""),
			guard.WithNamespace(""), guard.WithOwner(""), guard.WithLabel(""),
		}
		for range 2 { // no marker, no minimum hold
			require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				require.Empty(t, lease.Name())
				require.NotEqual(t, "owner", lease.Owner())
				time.Sleep(2 * time.Hour) // no maximum hold
				return ctx.Err()
			}, off...))
		}
		claim := store.granted()[0].Claim
		require.Equal(t, "k", claim.Key)
		require.Empty(t, claim.Label)
		store.acquireElsewhere(t, time.Hour)
		start := time.Now()
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing, off...), guard.ErrBusy)
		require.Zero(t, time.Since(start))

		_, err = guard.New(store, off...)
		require.NoError(t, err)
		require.NoError(t, g.Close(t.Context()))
	})
}
