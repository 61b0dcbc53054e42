package guard_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// early is the WithMargin of these tests.
const early = 3 * time.Second

func TestMargin_endsTheContextBeforeTheLease(t *testing.T) {
	for name, opts := range map[string][]guard.Option{
		"the store is frozen": nil,
		"no renewal":          {guard.WithoutRenewal()},
		"for the one call":    {guard.WithMargin(0), guard.WithMargin(early)},
		"MaxHold comes later": {guard.WithMaxHold(ttl)},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnRenew = noRenewal
			start := time.Now()
			err := g.Do(t.Context(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				require.Equal(t, ttl-margin-early, time.Since(start))
				lease, _ := guard.FromContext(ctx)
				require.False(t, lease.Valid())
				time.Sleep(early)
				require.False(t, store.free("k"), "what the run has started has had the margin to end")
				return nil
			}, append(opts, guard.WithOnce(time.Hour))...)
			lost := as[*guard.LostError](t, err)
			require.Equal(t, guard.LossExpired, lost.Reason)
			require.Zero(t, lost.Late)
			require.NoError(t, g.Do(t.Context(), "k", nothing), "a lost run leaves no marker")
		}, guard.WithMargin(early))
	}
}

func TestMargin_changesNothingWhileRenewalsSucceed(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			time.Sleep(5 * ttl)
			return context.Cause(ctx)
		}))
		require.Less(t, store.count(driver.OpRenew), 21)
	}, guard.WithMargin(ttl/3))
}

func TestMargin_leavesTimeToRepeatARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		start := time.Now()
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if time.Since(start) < ttl/2 {
				return false, frozen(ctx)
			}
			return store.memory.Renew(ctx, c)
		}
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			time.Sleep(2 * ttl)
			return context.Cause(ctx)
		}))
	}, guard.WithMargin(ttl/3))
}

func TestMargin_isLeftWhenMaxHoldEndsTheContext(t *testing.T) {
	for _, longest := range []time.Duration{time.Second, ttl - margin - early, 2 * ttl} {
		inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
			start := time.Now()
			err := g.Do(t.Context(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				require.Equal(t, longest, time.Since(start), "the margin does not move the end by WithMaxHold")
				time.Sleep(early)
				require.False(t, store.free("k"))
				return nil
			}, guard.WithMaxHold(longest))
			require.Equal(t, guard.LossMaxHold, as[*guard.LostError](t, err).Reason)
		}, guard.WithMargin(early))
	}
}

func TestMargin_ofCallsThatShareALeaseIsTheirOwn(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		var answers atomic.Bool
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if !answers.Load() {
				return false, errors.New("unreachable")
			}
			return store.memory.Renew(ctx, c)
		}
		start := time.Now()
		late := hold(t, here, "k", guard.WithShared())
		soon := hold(t, here, "k", guard.WithShared(), guard.WithMargin(early))
		require.Equal(t, 1, store.count(driver.OpAcquire), "the store has one lease")
		<-soon.Context().Done()
		require.Equal(t, ttl-margin-early, time.Since(start))
		require.True(t, late.Valid())
		answers.Store(true)
		time.Sleep(2 * ttl)
		require.True(t, late.Valid(), "it is renewed for the call that still has it")
		require.False(t, soon.Valid())
		require.ErrorIs(t, soon.Release(t.Context()), guard.ErrLost)
		require.NoError(t, late.Release(t.Context()))
		require.True(t, store.free("k"))
	})
}

func TestMargin_ofSeveralKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		start := time.Now()
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if c.Key == "b" && time.Since(start) > 0 { // it has the fence of "a" by then
				return false, frozen(ctx)
			}
			return store.memory.Renew(ctx, c)
		}
		err := g.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
			<-ctx.Done()
			require.Equal(t, ttl-margin-early, time.Since(start))
			return nil
		}, guard.WithMargin(early))
		require.ErrorIs(t, err, guard.ErrLost)
	})
}

// A call that takes over a lease inside the process has its own margin.
func TestMargin_ofALeaseThatWasHandedOff(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = noRenewal
		first := hold(t, g, "k")
		var took time.Duration
		ended := make(chan struct{})
		for i := range 2 {
			go func() {
				lease := hold(t, g, "k", guard.WithWait(time.Minute), guard.WithMargin(time.Duration(i)*early))
				if i == 1 {
					start := store.granted()[1].Start
					<-lease.Context().Done()
					took = time.Since(start)
					defer close(ended)
				}
				_ = lease.Release(t.Context())
			}()
			synctest.Wait()
		}
		require.NoError(t, first.Release(t.Context()))
		<-ended
		require.Len(t, store.granted(), 2, "the second waiter got the lease of the first")
		require.Equal(t, ttl-margin-early, took)
	})
}

func TestMargin_aGrantThatLeavesNoTimeIsNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			grant, err := store.memory.TryAcquire(ctx, c)
			time.Sleep(c.TTL - c.TTL/3 - 20*time.Millisecond)
			return grant, err
		}
		ran := false
		err := g.Do(t.Context(), "k", func(context.Context) error { ran = true; return nil },
			guard.WithTTL(time.Second), guard.WithMargin(time.Second/3))
		require.ErrorIs(t, err, guard.ErrStore)
		require.False(t, ran)
		time.Sleep(ttl) // until the cleaner has released it
		require.True(t, store.free("k"))
	})
}

func TestMargin_isAThirdOfTheTTLAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		for name, opts := range map[string][]guard.Option{
			"too long":       {guard.WithMargin(ttl/3 + 1)},
			"negative":       {guard.WithMargin(-1)},
			"the TTL shrank": {guard.WithMargin(early), guard.WithTTL(time.Second)},
		} {
			require.Equal(t, "WithMargin", as[*guard.SettingError](t, g.Do(t.Context(), "k", nothing, opts...), name).Setting, name)
		}
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithMargin(ttl/3)))
	})
}
