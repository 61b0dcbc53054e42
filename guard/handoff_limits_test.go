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

func TestHandOff_isBoundedByTheReservedFences(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		const reserved = 100
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			c.Fences.Reserve = min(c.Fences.Reserve, reserved) // the counter is ahead of the clock
			return store.memory.TryAcquire(ctx, c)
		}
		c := newCallers(t, g)
		for range 1 + 5*(reserved+1) {
			c.start(t.Context(), 5*time.Microsecond)
		}
		c.all.Wait()
		granted := store.granted()
		require.Len(t, granted, 1+5)
		for i, runs := range []int{1, 102, 203, 304, 405} {
			require.Equal(t, granted[i+1].Grant.Fence, c.fence(runs))
			require.Equal(t, granted[i+1].Grant.Fence+reserved, c.fence(runs+reserved))
		}
		for i := 1; i < len(c.fences); i++ {
			require.Greater(t, c.fence(i), c.fence(i-1))
		}
	})
}

func TestHandOff_isBoundedByTime(t *testing.T) {
	for _, c := range []struct{ ttl, period time.Duration }{{ttl, 20 * time.Millisecond}, {guard.MinTTL, 10 * time.Millisecond}} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			all := newCallers(t, g)
			for range 41 {
				all.start(t.Context(), 3*time.Millisecond, guard.WithTTL(c.ttl))
			}
			all.all.Wait()
			granted := store.granted()
			require.Greater(t, len(granted), 5)
			for i := 2; i < len(granted)-1; i++ {
				period := granted[i].Start.Sub(granted[i-1].Start)
				require.GreaterOrEqual(t, period, c.period)
				require.Less(t, period, c.period+3*time.Millisecond)
			}
		}, guard.WithTTL(c.ttl))
	}
}

// runFour starts four calls, which queue, and waits for them. The last call has the options other.
// The first three have the options one, and the third of them runs f.
func runFour(t *testing.T, one, other []guard.Option, f func(context.Context) error, check func(c *callers, store *testStore)) {
	t.Helper()
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		c.start(t.Context(), time.Millisecond, one...)
		c.start(t.Context(), time.Millisecond, one...)
		c.startFunc(t.Context(), f, one...)
		c.start(t.Context(), time.Millisecond, other...)
		c.all.Wait()
		check(c, store)
	})
}

func TestHandOff_isOnlyToACallWithTheSameTerms(t *testing.T) {
	for name, m := range map[string]struct {
		one, other []guard.Option
		grants     int
	}{
		"the same terms":      {nil, nil, 2},
		"a longer TTL":        {nil, []guard.Option{guard.WithTTL(2 * ttl)}, 3},
		"a shorter TTL":       {nil, []guard.Option{guard.WithTTL(ttl / 2)}, 3},
		"no renewal":          {nil, []guard.Option{guard.WithoutRenewal()}, 3},
		"renewal, after none": {[]guard.Option{guard.WithoutRenewal()}, nil, 4},
		"other limits":        {nil, []guard.Option{guard.WithMaxHold(time.Minute), guard.WithMinHold(time.Second), guard.WithLabel("x"), guard.WithName("x")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			runFour(t, m.one, m.other, nothing, func(c *callers, store *testStore) {
				c.requireOrder(0, 1, 2, 3)
				require.Len(t, store.granted(), m.grants)
			})
		})
	}
}

func TestHandOff_doesNotHappenIfSomethingIsLeftBehind(t *testing.T) {
	once := []guard.Option{guard.WithOnce(time.Hour)}
	failed := errors.New("failed")
	inBubbleOf(t, "a done marker", func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		fail := func(context.Context) error { time.Sleep(time.Millisecond); return failed }
		c.startFunc(t.Context(), fail, once...)
		c.startFunc(t.Context(), fail, once...)
		c.startFunc(t.Context(), fail, once...)
		c.start(t.Context(), time.Millisecond, append(once, guard.WithLabel("the finished run"))...)
		c.start(t.Context(), time.Millisecond, once...)
		for i := range 3 {
			c.fail(i, failed)
		}
		c.requireOrder(0, 1, 2, 3)
		require.ErrorIs(t, c.end(4).err, guard.ErrDone)
		require.Len(t, store.granted(), 2, "a failed run leaves no marker, so its lease is handed off")
		require.Regexp(t, "\x1fthe finished run$", store.released()[1].Label)
	})
	t.Run("a minimum hold", func(t *testing.T) {
		runFour(t, []guard.Option{guard.WithMinHold(10 * time.Second)}, nil, nothing, func(c *callers, store *testStore) {
			c.requireOrder(0, 1, 2, 3)
			require.Len(t, store.granted(), 4)
			require.GreaterOrEqual(t, c.end(3).at.Sub(store.granted()[0].Start), 30*time.Second)
		})
	})
	t.Run("a minimum hold that has passed", func(t *testing.T) {
		runFour(t, []guard.Option{guard.WithMinHold(time.Microsecond)}, nil, nothing, func(c *callers, store *testStore) {
			require.Len(t, store.granted(), 3, "only the minimum hold of the empty run has not passed")
		})
	})
}

// The limits of a hold count from the hand-off.
func TestHandOff_countsTheLimitsOfEachHoldFromItsOwnStart(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		for range 3 {
			c.start(t.Context(), 5*time.Millisecond)
		}
		var ended time.Duration
		var cause error
		c.startFunc(t.Context(), func(ctx context.Context) error { return untilEnd(&ended, &cause)(ctx) }, guard.WithMaxHold(25*time.Second), guard.WithMinHold(20*time.Second))
		c.start(t.Context(), 0, guard.WithMinHold(time.Second))
		handedOff := time.Now().Add(15 * time.Millisecond)
		c.all.Wait()
		require.Equal(t, 25*time.Second, ended)
		lost := as[*guard.LostError](t, c.end(3).err)
		require.Equal(t, guard.LossMaxHold, lost.Reason)
		require.Equal(t, c.fence(3), lost.Fence)
		require.Equal(t, handedOff.Add(25*time.Second), c.end(3).at)
		require.NoError(t, c.end(4).err)
		require.False(t, store.free("k"), "the minimum hold of the last call has not passed")
		time.Sleep(time.Second)
		require.True(t, store.free("k"))
	})
}

// The hand-off period has not passed when the calls end, so only the remaining validity decides.
func TestHandOff_needsHalfOfTheValidity(t *testing.T) {
	for name, m := range map[string]struct {
		delay  time.Duration
		grants int
	}{"enough": {40 * time.Millisecond, 2}, "too little": {80 * time.Millisecond, 3}} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
				grant, err := store.memory.TryAcquire(ctx, c)
				if n == 2 {
					time.Sleep(m.delay) // the limit is 78 ms: half the TTL, less the margin
				}
				return grant, err
			}
			store.OnRenew = noRenewal
			c := newCallers(t, g)
			for range 4 {
				c.start(t.Context(), time.Millisecond)
			}
			c.all.Wait()
			if m.grants == 2 {
				require.Len(t, store.granted(), 2)
			} else {
				require.Greater(t, len(store.granted()), 2)
			}
		}, guard.WithTTL(200*time.Millisecond), guard.WithWait(time.Minute))
	}
}

// A hand-off does not extend the lease: its validity still counts from the grant.
func TestHandOff_doesNotExtendTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		// The host was suspended long ago.
		guard.SetSuspended(g, func() time.Duration { return time.Hour })
		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, errors.New("unreachable") }
		c := newCallers(t, g)
		for range 4 {
			c.start(t.Context(), 5*time.Millisecond)
		}
		var ended time.Duration
		var cause error
		c.startFunc(t.Context(), func(ctx context.Context) error { return untilEnd(&ended, &cause)(ctx) })
		c.all.Wait()
		require.Len(t, store.granted(), 2)
		require.Equal(t, ttl-margin-15*time.Millisecond, ended)
		require.Equal(t, guard.LossExpired, as[*guard.LostError](t, c.end(4).err).Reason)
	})
}

// After a repeated claim, it is unknown which fences the store has reserved for it.
func TestHandOff_doesNotHappenIfTheClaimHeldTheKeyAlready(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var reserves []int
		store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
			reserves = append(reserves, c.Fences.Reserve)
			grant, err := store.memory.TryAcquire(ctx, c)
			if n == 2 {
				return driver.Answer{}, errors.New("the reply was lost")
			}
			return grant, err
		}
		c := newCallers(t, g)
		c.start(t.Context(), time.Millisecond)
		c.start(t.Context(), time.Millisecond)
		ctx := within(t, 2*time.Millisecond)
		c.start(ctx, time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		c.requireOrder(0, 1)
		require.Equal(t, []int{0, 4096, 4096}, reserves)

		store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
			grant, err := store.memory.TryAcquire(ctx, c)
			if n == 5 {
				return driver.Answer{}, errors.New("the reply was lost")
			}
			return grant, err
		}
		c = newCallers(t, g)
		for range 3 {
			c.start(t.Context(), time.Millisecond)
		}
		c.requireOrder(0, 1, 2)
		require.Len(t, store.granted(), 2+3)
	})
}
