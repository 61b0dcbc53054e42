package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// dropReply makes the store grant the first claim without an answer.
func (s *testStore) dropReply() {
	s.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
		if n == 1 {
			_, _ = s.memory.TryAcquire(ctx, c)
			return driver.Answer{}, frozen(ctx)
		}
		return driver.Answer{}, guardtest.ErrUnscripted
	}
}

// deferredCall makes a call whose claim is granted without an answer, and returns its Deferral.
func deferredCall(t *testing.T, g *guard.Guard, store *testStore) *guard.Deferral {
	t.Helper()
	store.dropReply()
	d := g.Adapter().Defer()
	ctx := within(t, time.Second)
	err := g.Do(ctx, "k", nothing, d.Option())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, guard.Ran(err))
	require.ErrorIs(t, d.Err(), guard.ErrStore)
	return d
}

// The claim of a call that the store has not answered stays until the work without a lease has
// ended.
func TestDeferral_keepsTheClaimUntilItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		d := deferredCall(t, g, store)
		time.Sleep(ttl / 2)
		require.False(t, store.free("k"))
		d.End()
		synctest.Wait()
		require.True(t, store.free("k"))
		d.End()
	})
}

// Without an answer, the claim ends with its TTL at the latest.
func TestDeferral_isNotRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		d := deferredCall(t, g, store)
		time.Sleep(ttl)
		require.True(t, store.free("k"))
		d.End()
	})
}

// Close waits for the work, and releases the claim even if it does not wait for as long.
func TestDeferral_close(t *testing.T) {
	for name, patient := range map[string]bool{"waits": true, "does not wait": false} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			d := deferredCall(t, g, store)
			limit := time.Second
			if patient {
				limit = ttl
				time.AfterFunc(3*time.Second, d.End)
			}
			ctx := within(t, limit)
			start := time.Now()
			err := g.Close(ctx)
			require.True(t, store.free("k"))
			if patient {
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(start), 3*time.Second)
			}
			d.End()
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

// Err tells a store that has answered from one that has not.
func TestDeferral_err(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		d := g.Adapter().Defer()
		defer d.End()
		require.NoError(t, d.Err())
		store.acquireElsewhere(t, time.Hour)
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing, d.Option()), guard.ErrBusy)
		require.NoError(t, d.Err())

		ctx, cancel := context.WithCancel(t.Context())
		store.OnAcquire = func(ctx context.Context, n int, _ driver.Claim) (driver.Answer, error) {
			if n == 2 {
				return driver.Answer{}, guardtest.Fail(driver.KindOOM)
			}
			time.AfterFunc(time.Millisecond, cancel)
			return driver.Answer{}, frozen(ctx)
		}
		require.ErrorIs(t, g.Do(ctx, "k", nothing, d.Option()), context.Canceled)
		require.Equal(t, driver.KindOOM, as[*guard.StoreError](t, d.Err()).Kind, "what the end of the call has cut off says less")
	})
}
