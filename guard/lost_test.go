package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// untilEnd returns a function that runs until its context ends. It records how long that took, and
// the cause.
func untilEnd(ended *time.Duration, cause *error) func(context.Context) error {
	start := time.Now()
	return func(ctx context.Context) error {
		<-ctx.Done()
		*ended, *cause = time.Since(start), context.Cause(ctx)
		return nil
	}
}

func TestLoss_endsTheContextBeforeTheLeaseWhateverTheStoreDoes(t *testing.T) {
	broken := map[string]func(context.Context) error{
		"fails at once": func(context.Context) error { return errors.New("broken") },
		"is frozen":     frozen,
		"ignores its context": func(context.Context) error {
			time.Sleep(3 * ttl)
			return errors.New("late")
		},
	}
	for name, answer := range broken {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnRenew = func(ctx context.Context, _ int, _ driver.Claim) (bool, error) { return false, answer(ctx) }
			var ended time.Duration
			var cause error
			err := g.Do(t.Context(), "k", untilEnd(&ended, &cause))
			require.Equal(t, ttl-margin, ended, "the context ends a margin before the TTL")
			require.ErrorIs(t, cause, guard.ErrLost)
			require.ErrorIs(t, err, guard.ErrLost, "although the function returned nil")
			require.Equal(t, guard.LossExpired, as[*guard.LostError](t, err).Reason)
			require.NotErrorIs(t, err, guard.ErrStore)
			time.Sleep(3 * ttl) // until the store has answered
		})
	}
}

// What the queue knew before the call waited for its lease is out of date when that is lost.
func TestLoss_forgetsWhoHeldTheKeyBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		elsewhere := func(label string) driver.Claim {
			c := driver.Claim{Key: "k", ID: label, Owner: label, TTL: ttl, Label: label}
			grant, err := store.memory.TryAcquire(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, grant.State)
			return c
		}
		before := elsewhere("before")
		time.AfterFunc(time.Second, func() { store.release(t, before, driver.After{}) })
		lease := hold(t, g, "k", guard.WithWait(time.Minute), guard.WithoutRenewal())
		<-lease.Context().Done()
		require.Zero(t, guard.Queues(g))
		time.Sleep(margin)
		elsewhere("now")
		store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
			time.Sleep(50 * time.Millisecond)
			return driver.Answer{}, guardtest.ErrUnscripted
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				require.Equal(t, "now", as[*guard.BusyError](t, g.Do(t.Context(), "k", nothing, guard.WithWait(10*time.Millisecond))).Label)
			})
		}
		all.Wait()
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	})
}

func TestLoss_wrapsTheFunctionsErrorButNotTheEndOfOurContext(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = notHeld
		mine := errors.New("mine")
		err := g.Do(t.Context(), "k", func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(mine, ctx.Err())
		})
		require.ErrorIs(t, err, guard.ErrLost)
		require.ErrorIs(t, err, mine)
		require.NotErrorIs(t, err, context.Canceled, "the caller has not cancelled anything")
	})
}

func TestLoss_isNoticedAtOnceWhenTheStoreSaysNotHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = notHeld
		var ended time.Duration
		var cause error
		err := g.Do(t.Context(), "k", untilEnd(&ended, &cause))
		require.LessOrEqual(t, ended, ttl/3)
		require.Equal(t, guard.LossNotHeld, as[*guard.LostError](t, err).Reason)
		require.Equal(t, 1, store.count(driver.OpRenew), "a definite answer is final")
		require.Zero(t, store.count(driver.OpRelease), "there is nothing to release")
	})
}

func TestRenewal_continuesAfterErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		start := time.Now()
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if time.Since(start) < 8*time.Second {
				return false, errors.New("unreachable")
			}
			return store.memory.Renew(ctx, c)
		}
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			time.Sleep(5 * ttl)
			require.NoError(t, context.Cause(ctx))
			return nil
		}))
		require.Less(t, store.count(driver.OpRenew), 40, "renewals are not retried in a busy loop")
	})
}

func TestRenewal_continuesUntilTheFunctionHasReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			time.Sleep(10 * time.Millisecond) // time passes even if one follows another
			return store.memory.Renew(ctx, c)
		}
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, g.Do(ctx, "k", func(ctx context.Context) error {
			cancel()
			for range 5 {
				time.Sleep(ttl)
				require.False(t, store.free("k"), "a function that ignores its context is still running")
			}
			require.ErrorIs(t, context.Cause(ctx), context.Canceled)
			return nil
		}))
		require.True(t, store.free("k"))
		renewed := store.count(driver.OpRenew)
		time.Sleep(5 * ttl)
		require.Equal(t, renewed, store.count(driver.OpRenew), "nothing is renewed after the release")
	})
}

func TestRenewal_continuesAfterALossWhileTheFunctionRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var unreachable atomic.Bool
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if unreachable.Load() {
				return false, errors.New("unreachable")
			}
			// The store's clock stands still.
			return store.memory.Renew(ctx, driver.Claim{Key: c.Key, ID: c.ID, TTL: time.Hour})
		}
		err := g.Do(t.Context(), "k", func(ctx context.Context) error {
			time.Sleep(ttl)
			unreachable.Store(true)
			<-ctx.Done()
			unreachable.Store(false)
			time.Sleep(ttl)
			lease, _ := guard.FromContext(ctx)
			require.False(t, lease.Valid(), "a lost lease does not become valid again")
			require.False(t, store.free("k"))
			return nil
		})
		require.ErrorIs(t, err, guard.ErrLost)
		require.True(t, store.free("k"), "the claim that the store still has is released")
	})
}

// There are enough keys that some healthy ones are due at the same instant as a stuck one.
func TestRenewal_ofOneKeyIsNotDelayedByAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if strings.HasPrefix(c.Key, "stuck") {
				return false, frozen(ctx)
			}
			return store.memory.Renew(ctx, c)
		}
		var stuck, healthy []*guard.Lease
		for i := range 200 {
			healthy = append(healthy, hold(t, g, fmt.Sprint("healthy ", i)))
			if i%20 == 0 {
				stuck = append(stuck, hold(t, g, fmt.Sprint("stuck ", i)))
			}
		}
		time.Sleep(3 * ttl)
		for _, lease := range stuck {
			require.False(t, lease.Valid())
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
		}
		for _, lease := range healthy {
			require.True(t, lease.Valid())
			require.NoError(t, lease.Release(t.Context()))
		}
		last := map[string]time.Time{}
		for _, call := range store.Calls() {
			key := call.Claim.Key
			if before, ok := last[key]; ok && call.Op == driver.OpRenew && strings.HasPrefix(key, "healthy") {
				require.LessOrEqual(t, call.Start.Sub(before), ttl/3, "the renewal of %s was delayed", key)
			}
			last[key] = call.Start
		}
	})
}

func TestMaxHold_endsTheContextAndTheRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		const longest = 3*ttl + time.Second
		start := time.Now()
		err := g.Do(t.Context(), "k", func(ctx context.Context) error {
			<-ctx.Done()
			require.Equal(t, longest, time.Since(start))
			time.Sleep(ttl)
			require.True(t, store.free("k"), "a function that hangs holds the key for one more TTL at most")
			return nil
		}, guard.WithMaxHold(longest), guard.WithOnce(time.Hour))
		lost := as[*guard.LostError](t, err)
		require.Equal(t, guard.LossMaxHold, lost.Reason)
		require.NoError(t, g.Do(t.Context(), "k", nothing), "a lost run leaves no marker")
	})
}

func TestSuspension_losesTheLeases(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var asleep atomic.Int64
		guard.SetSuspended(g, func() time.Duration { return time.Duration(asleep.Load()) })
		lease := hold(t, g, "k")
		asleep.Store(int64(margin / 2))
		require.True(t, lease.Valid(), "the margin covers a short suspension")
		time.Sleep(600 * time.Millisecond)
		require.NoError(t, context.Cause(lease.Context()))
		asleep.Store(int64(margin))
		require.False(t, lease.Valid(), "the lease is invalid at once")
		time.Sleep(600 * time.Millisecond) // before the first renewal
		require.Equal(t, guard.LossSuspended, as[*guard.LostError](t, context.Cause(lease.Context()), "the context ends soon after").Reason)
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)

		again := hold(t, g, "k")
		require.True(t, again.Valid(), "a suspension does not affect later leases")
		require.NoError(t, again.Release(t.Context()))
	})
}

func TestSuspension_isNoticedByTheRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var asleep atomic.Int64
		guard.SetSuspended(g, func() time.Duration { return time.Duration(asleep.Load()) })
		start := time.Now()
		var renewed time.Duration
		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
			renewed = time.Since(start)
			asleep.Store(int64(time.Hour))
			return true, nil
		}
		lease := hold(t, g, "k")
		<-lease.Context().Done()
		require.Equal(t, renewed, time.Since(start), "the lease is lost although the store still knows the claim")
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	})
}

func TestSuspension_isNoticedByTheRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var asleep atomic.Int64
		guard.SetSuspended(g, func() time.Duration { return time.Duration(asleep.Load()) })
		err := g.Do(t.Context(), "k", func(context.Context) error { asleep.Store(int64(time.Hour)); return nil }, guard.WithOnce(time.Hour))
		require.ErrorIs(t, err, guard.ErrLost)
		require.NoError(t, g.Do(t.Context(), "k", nothing), "a lost run leaves no marker")
	})
}

func TestDo_reportsALossThatOnlyTheReleaseFinds(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRelease = func(_ context.Context, _ int, _ driver.Claim, _ driver.After) (bool, error) { return false, nil }
		err := g.Do(t.Context(), "k", nothing)
		require.Equal(t, guard.LossNotHeld, as[*guard.LostError](t, err).Reason)
	})
}

func TestValid_isFalseBeforeTheContextHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = noRenewal
		lease := hold(t, g, "k")
		time.Sleep(ttl - margin)
		// No other goroutine may have run yet, so the clock alone decides.
		require.False(t, lease.Valid())
		synctest.Wait()
		require.ErrorIs(t, context.Cause(lease.Context()), guard.ErrLost)
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	})
}
