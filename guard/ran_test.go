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

// A ranScene is a Guard whose next call to Do is made with f.
type ranScene struct {
	t     *testing.T
	g     *guard.Guard
	store *testStore
	f     func(context.Context) error
}

// Every error of Do says whether the function ran. errors.Is finds no other sentinel in it than
// the expected one, and no error of a context but the caller's, even if the store's own errors are
// context errors.
func TestRan_isCorrectForEveryErrorOfDo(t *testing.T) {
	mine := errors.New("mine")
	sentinels := []error{guard.ErrBusy, guard.ErrDone, guard.ErrLost, guard.ErrClosed, guard.ErrStore, guard.ErrMarker, context.Canceled, context.DeadlineExceeded}
	for name, c := range map[string]struct {
		do func(s ranScene) error
		is error // of the sentinels, or nil
	}{
		"success": {do: func(s ranScene) error { return s.g.Do(s.t.Context(), "k", s.f) }},
		"the function's own error": {do: func(s ranScene) error {
			return s.g.Do(s.t.Context(), "k", func(ctx context.Context) error { return errors.Join(s.f(ctx), mine) })
		}},
		"the error of another call": {is: guard.ErrBusy, do: func(s ranScene) error {
			s.store.acquireElsewhere(s.t, time.Hour)
			return s.g.Do(s.t.Context(), "outer", func(ctx context.Context) error {
				_ = s.f(ctx)
				return s.g.Do(ctx, "k", nothing)
			})
		}},
		"busy": {is: guard.ErrBusy, do: func(s ranScene) error {
			s.store.acquireElsewhere(s.t, time.Hour)
			return s.g.Do(s.t.Context(), "k", s.f)
		}},
		"busy after a wait": {is: guard.ErrBusy, do: func(s ranScene) error {
			s.store.acquireElsewhere(s.t, time.Hour)
			return s.g.Do(s.t.Context(), "k", s.f, guard.WithWait(time.Second))
		}},
		"done": {is: guard.ErrDone, do: func(s ranScene) error {
			require.NoError(s.t, s.g.Do(s.t.Context(), "k", nothing, guard.WithOnce(time.Hour)))
			return s.g.Do(s.t.Context(), "k", s.f)
		}},
		"lost": {is: guard.ErrLost, do: func(s ranScene) error {
			return s.g.Do(s.t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return s.f(ctx) }, guard.WithoutRenewal())
		}},
		"lost before the call": {is: guard.ErrLost, do: func(s ranScene) (err error) {
			_ = s.g.Do(s.t.Context(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				err = s.g.Do(context.WithoutCancel(ctx), "k", s.f)
				return nil
			}, guard.WithoutRenewal())
			return err
		}},
		"closed": {is: guard.ErrClosed, do: func(s ranScene) error {
			require.NoError(s.t, s.g.Close(s.t.Context()))
			return s.g.Do(s.t.Context(), "k", s.f)
		}},
		"closed while it waits": {is: guard.ErrClosed, do: func(s ranScene) error {
			s.store.acquireElsewhere(s.t, time.Hour)
			time.AfterFunc(time.Second, func() { _ = s.g.Close(context.Background()) })
			return s.g.Do(s.t.Context(), "k", s.f, guard.WithWait(time.Hour))
		}},
		"revoked by Close": {is: guard.ErrClosed, do: func(s ranScene) error {
			ended, cancel := context.WithCancel(s.t.Context())
			cancel()
			time.AfterFunc(time.Second, func() { _ = s.g.Close(ended) })
			return s.g.Do(s.t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return s.f(ctx) })
		}},
		"the store cannot be asked": {is: guard.ErrStore, do: func(s ranScene) error {
			s.store.OnAcquire = failing(guardtest.Fail(driver.KindConnection))
			return s.g.Do(s.t.Context(), "k", s.f)
		}},
		"the marker may be missing": {is: guard.ErrMarker, do: func(s ranScene) error {
			s.store.failReleasesFor(time.Minute)
			return s.g.Do(s.t.Context(), "k", s.f, guard.WithOnce(time.Hour))
		}},
		"cancelled": {is: context.Canceled, do: func(s ranScene) error {
			ctx, cancel := context.WithCancelCause(s.t.Context())
			cancel(mine)
			return s.g.Do(ctx, "k", s.f)
		}},
		"cancelled while it waits": {is: context.DeadlineExceeded, do: func(s ranScene) error {
			s.store.acquireElsewhere(s.t, time.Hour)
			ctx := within(s.t, time.Second)
			return s.g.Do(ctx, "k", s.f, guard.WithWait(time.Hour))
		}},
		"lost, and the renewal had a context error": {is: guard.ErrLost, do: func(s ranScene) error {
			s.store.OnRenew = func(ctx context.Context, _ int, _ driver.Claim) (bool, error) {
				return false, driver.NewStoreError("test", driver.OpRenew, "k", frozen(ctx))
			}
			return s.g.Do(s.t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return errors.Join(s.f(ctx), ctx.Err()) })
		}},
		"cancelled while the store is asked": {is: context.Canceled, do: func(s ranScene) error {
			ctx, cancel := context.WithCancel(s.t.Context())
			s.store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				cancel()
				return driver.Answer{}, driver.NewStoreError("test", driver.OpAcquire, c.Key, frozen(ctx))
			}
			return s.g.Do(ctx, "k", s.f)
		}},
		"the store answers with context errors": {is: guard.ErrStore, do: func(s ranScene) error {
			s.store.OnAcquire = failing(errors.Join(context.Canceled, context.DeadlineExceeded))
			return s.g.Do(s.t.Context(), "k", s.f)
		}},
		"a bad key":    {do: func(s ranScene) error { return s.g.Do(s.t.Context(), "", s.f) }},
		"a bad option": {do: func(s ranScene) error { return s.g.Do(s.t.Context(), "k", s.f, guard.WithWait(-1)) }},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			store := newTestStore()
			g := openGuard(t, store, guard.WithTTL(ttl))
			ran := false
			err := c.do(ranScene{t, g, store, func(context.Context) error { ran = true; return nil }})
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
