package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestErrors_areDistinct(t *testing.T) {
	kinds := map[string]error{
		"busy": guard.ErrBusy, "done": guard.ErrDone, "lost": guard.ErrLost, "closed": guard.ErrClosed,
		"cancelled": context.Canceled, "store": guard.ErrStore,
	}
	// A Guard creates each error, over a store whose own errors are context errors. That is the
	// worst case.
	outcomes := map[string]func(t *testing.T, g *guard.Guard, store *testStore) error{
		"busy": func(t *testing.T, g *guard.Guard, store *testStore) error {
			_, err := store.memory.TryAcquire(t.Context(), driver.Claim{Key: "k", ID: "other", TTL: time.Second})
			require.NoError(t, err)
			return g.Do(t.Context(), "k", nothing)
		},
		"done": func(t *testing.T, g *guard.Guard, _ *testStore) error {
			require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithOnce(time.Second)))
			return g.Do(t.Context(), "k", nothing)
		},
		"lost": func(t *testing.T, g *guard.Guard, store *testStore) error {
			store.OnRenew = func(ctx context.Context, _ int, _ driver.Claim) (bool, error) {
				return false, driver.NewStoreError("test", driver.OpRenew, "k", frozen(ctx))
			}
			return g.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		},
		"closed": func(t *testing.T, g *guard.Guard, _ *testStore) error {
			require.NoError(t, g.Close(t.Context()))
			return g.Do(t.Context(), "k", nothing)
		},
		"cancelled": func(t *testing.T, g *guard.Guard, store *testStore) error {
			ctx, cancel := context.WithCancel(t.Context())
			store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				cancel()
				return driver.Answer{}, driver.NewStoreError("test", driver.OpAcquire, c.Key, frozen(ctx))
			}
			return g.Do(ctx, "k", nothing)
		},
		"store": func(t *testing.T, g *guard.Guard, store *testStore) error {
			store.OnAcquire = failing(errors.Join(context.Canceled, context.DeadlineExceeded))
			return g.Do(t.Context(), "k", nothing)
		},
	}
	for name, outcome := range outcomes {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			err := outcome(t, g, store)
			require.Error(t, err)
			for other, kind := range kinds {
				require.Equal(t, name == other, errors.Is(err, kind), "errors.Is(%v, the %s error)", err, other)
			}
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestErrors_sayWhatHappened(t *testing.T) {
	mine := errors.New("mine")
	for want, err := range map[string]error{
		`guard: "k" is busy, held by "web-1", for up to 1.5s`: &guard.BusyError{Key: "k", Left: 1500 * time.Millisecond, Label: "web-1"},
		`guard: "k" is busy (waited 2s)`:                      &guard.BusyError{Key: "k", Left: -1, Waited: 2 * time.Second},
		`guard: "k" is done`:                                  &guard.DoneError{Key: "k"},
		`guard: lease on "k" was lost: expired (last renewal: unreachable); the function returned: mine`: &guard.LostError{
			Key: "k", Reason: guard.LossExpired, Renew: errors.New("unreachable"), Err: mine,
		},
		`guard: "k": guard is closed`: &guard.ClosedError{Key: "k"},
		`single: renew "k" at 127.0.0.1:6379: oom: mine`: &guard.StoreError{
			Backend: "single", Op: driver.OpRenew, Key: "k", Addr: "127.0.0.1:6379", Kind: driver.KindOOM, Err: mine,
		},
		`guard: WithTTL(1ns): must be at least 100ms`: &guard.SettingError{Setting: "WithTTL", Value: "1ns", Reason: "must be at least 100ms"},
	} {
		require.EqualError(t, err, want)
	}
}

func TestState_hasAName(t *testing.T) {
	require.Equal(t, "busy granted done unknown",
		driver.Busy.String()+" "+driver.Granted.String()+" "+driver.Done.String()+" "+driver.State(9).String())
}
