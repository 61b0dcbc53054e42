package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// In these tests, one claim is sent soon after another. The Guard then does not read again for how
// long the host has been suspended.

func TestSuspension_duringARequestIsNeverMissed(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Microsecond, 5 * time.Millisecond, time.Second} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			var asleep atomic.Int64
			guard.SetSuspended(g, func() time.Duration { return time.Duration(asleep.Load()) })
			time.Sleep(time.Second)
			first := hold(t, g, "first")
			time.Sleep(apart)
			suspended := ""
			store.OnAcquire = func(_ context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				if suspended == "" {
					suspended = c.ID
					asleep.Add(int64(margin))
				}
				return driver.Answer{}, guardtest.ErrUnscripted
			}
			second := hold(t, g, "second")
			require.Equal(t, 3, store.count(driver.OpAcquire), "the grant of the request that was under way is not used")
			require.True(t, second.Valid())
			require.False(t, first.Valid())
			require.ErrorIs(t, first.Release(t.Context()), guard.ErrLost)
			require.NoError(t, second.Release(t.Context()))
		})
	}
}

func TestSuspension_justBeforeARequestCostsNoLease(t *testing.T) {
	for apart, asked := range map[time.Duration]int{
		0:           2, // one more than necessary, to be safe
		time.Second: 1,
	} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			var asleep atomic.Int64
			guard.SetSuspended(g, func() time.Duration { return time.Duration(asleep.Load()) })
			time.Sleep(time.Second)
			require.NoError(t, g.Do(t.Context(), "first", nothing))
			time.Sleep(apart)
			synctest.Wait() // the scheduler does not read the suspension now
			asleep.Store(int64(time.Hour))
			lease := hold(t, g, "second")
			require.Equal(t, 1+asked, store.count(driver.OpAcquire))
			time.Sleep(2 * ttl)
			require.True(t, lease.Valid())
			require.NoError(t, lease.Release(t.Context()))
		})
	}
}

// A process can be interrupted between the readings of two clocks. The computed suspension is then
// too short.
func TestSuspension_isNotConfusedWithAnInterruption(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var interrupted atomic.Bool
		guard.SetSuspended(g, func() time.Duration {
			if interrupted.Load() {
				return time.Hour - time.Minute
			}
			return time.Hour
		})
		time.Sleep(time.Second)
		require.NoError(t, g.Do(t.Context(), "first", nothing))
		interrupted.Store(true)
		require.NoError(t, g.Do(t.Context(), "first", nothing))
		interrupted.Store(false)
		lease := hold(t, g, "second")
		time.Sleep(2 * ttl)
		valid := lease.Valid()
		require.NoError(t, lease.Release(t.Context()))
		require.True(t, valid)
		require.Equal(t, 3, store.count(driver.OpAcquire), "each call has used its first grant")
	})
}
