package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// closeWithin closes g with a time limit and returns the error of Close.
func closeWithin(t *testing.T, g *guard.Guard, limit time.Duration) error {
	t.Helper()
	ctx := within(t, limit)
	start := time.Now()
	err := g.Close(ctx)
	require.LessOrEqual(t, time.Since(start), limit+100*time.Millisecond)
	return err
}

// A call that is granted a lease after Close has begun does not use it. Close waits until each of
// these leases has been released.
func TestClose_releasesLeasesGrantedMeanwhile(t *testing.T) {
	for name, answer := range map[string]error{"granted": nil, "without an answer": errors.New("reset")} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			const calls = 100
			store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				grant, err := store.memory.TryAcquire(ctx, c)
				time.Sleep(time.Second)
				return grant, errors.Join(err, answer)
			}
			store.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
				time.Sleep(5 * time.Millisecond)
				return store.memory.Release(ctx, c, after)
			}
			var all sync.WaitGroup
			for i := range calls {
				all.Go(func() {
					if err := g.Do(t.Context(), fmt.Sprint("k", i), nothing); !errors.Is(err, guard.ErrClosed) {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			require.NoError(t, closeWithin(t, g, 10*time.Second))
			all.Wait()
			for i := range calls {
				require.True(t, store.free(fmt.Sprint("k", i)))
			}
		})
	}
}

// The error of Close counts the claims that it could not release. Hooks receive an error for each
// of them.
func TestClose_reportsClaimsThatItCouldNotRelease(t *testing.T) {
	var orphans events[guard.OrphanEvent]
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			grant, err := store.memory.TryAcquire(ctx, c)
			time.Sleep(time.Second)
			return grant, err
		}
		store.freezeReleases()
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() { _ = g.Do(t.Context(), fmt.Sprint("k", i), nothing) })
		}
		synctest.Wait()
		err := closeWithin(t, g, 5*time.Second)
		require.ErrorIs(t, err, guard.ErrStore)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "3 claims were not released")
		all.Wait()
		synctest.Wait()
		ended := 0
		for _, e := range orphans.all() {
			if !e.Pending {
				ended++
				require.ErrorIs(t, e.Err, guard.ErrStore)
			}
		}
		require.Equal(t, 3, ended)
		require.ErrorContains(t, g.Close(t.Context()), "3 claims were not released", "a second Close returns the same error")
	}, guard.WithHook(guard.Hook{Orphan: orphans.record}))
}

// A claim counts until it has ended, also if the clean-up failed for good before Close.
func TestClose_countsClaimsWhoseCleanUpFailedBefore(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		says  string
	}{
		"before the TTL has passed": {time.Second, "1 claim was not released"},
		"after":                     {ttl + time.Second, ""},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = failing(guardtest.Fail(driver.KindAuth))
			store.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
				return false, guardtest.Fail(driver.KindAuth)
			}
			require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrStore)
			time.Sleep(c.after)
			err := closeWithin(t, g, time.Second)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
		})
	}
}

// A Locker that panics must not end the process from a goroutine of Close.
func TestClose_containsAPanicOfTheLocker(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		hold(t, g, "k")
		var panicked atomic.Bool
		store.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
			if !panicked.Swap(true) {
				panic("a bug")
			}
			return false, guardtest.ErrUnscripted
		}
		require.ErrorContains(t, closeWithin(t, g, 0), "1 lease was revoked")
		time.Sleep(ttl)
		require.True(t, store.free("k"), "the cleaner has released it")
	})
}

// slowWaiter is the context of a call whose goroutine stops when it begins to rest.
type slowWaiter struct {
	context.Context
	goesOn chan struct{}
}

func (c slowWaiter) Done() <-chan struct{} {
	<-c.goesOn
	return c.Context.Done()
}

// Close revokes a lease that was offered to a waiter before the waiter has seen it. Hooks know of
// no acquire, so they must not receive a release.
func TestClose_reportsNoReleaseOfALeaseThatNobodyHasTaken(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		store.OnAcquire = store.acquireAfter(time.Second)
		waiter := slowWaiter{t.Context(), make(chan struct{})}
		var seen recorder
		errs := make(chan error, 2)
		go func() {
			errs <- here.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }, guard.WithShared(), guard.WithHook(seen.hook()))
		}()
		synctest.Wait()
		go func() {
			errs <- here.Do(waiter, "k", nothing, guard.WithShared(), guard.WithWait(time.Minute), guard.WithHook(seen.hook()))
		}()
		time.Sleep(2 * time.Second)
		err := closeWithin(t, here, 0)
		require.ErrorContains(t, err, "1 lease was revoked")
		require.ErrorContains(t, err, "1 call has not returned")
		require.ErrorIs(t, <-errs, guard.ErrClosed)
		close(waiter.goesOn)
		require.ErrorIs(t, <-errs, guard.ErrClosed)
		require.Equal(t, 2, seen.count("acquire end"))
		require.Equal(t, 1, seen.count("release"), "of the one that was granted")
		require.True(t, store.free("k"))
	})
}

// Close must not count a store call that has not returned as finished.
func TestClose_countsTheCallsThatHaveNotReturned(t *testing.T) {
	for name, c := range map[string]struct {
		stuck func(store *testStore, hang func())
		says  string
	}{
		"acquire": {func(store *testStore, hang func()) {
			store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
				hang()
				return driver.Answer{}, errors.New("at last")
			}
		}, "1 call to the store has not returned"},
		"release": {func(store *testStore, hang func()) {
			store.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
				hang()
				return true, nil
			}
		}, "1 call to the store has not returned"},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			store := newTestStore()
			g := openGuard(t, store)
			thaw := make(chan struct{})
			c.stuck(store, func() { <-thaw })
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = g.Do(t.Context(), "k", nothing)
			}()
			synctest.Wait()
			err := closeWithin(t, g, 50*time.Millisecond)
			require.ErrorIs(t, err, guard.ErrStore)
			require.ErrorContains(t, err, c.says)
			close(thaw)
			<-ended
		})
	}
}

// The cleaner keeps a bounded number of orphans. It leaves further claims to their TTLs and
// reports an error for each of them.
func TestLong_orphansBeyondTheBoundAreReported(t *testing.T) {
	leftout.IfShort(t)
	synctest.Test(t, func(t *testing.T) {
		var pending, failed atomic.Int64
		store := newTestStore()
		store.OnAcquire = failing(guardtest.Fail(driver.KindAuth))
		store.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
			return false, guardtest.Fail(driver.KindConnection)
		}
		// Within a longer TTL, each orphan would be tried some 25 times.
		const ttl = 100 * time.Millisecond
		g, err := guard.New(store, guard.WithTTL(ttl), guard.WithHook(guard.Hook{Orphan: func(_ context.Context, e guard.OrphanEvent) {
			if e.Pending {
				pending.Add(1)
			} else if e.Err != nil {
				failed.Add(1)
			}
		}}))
		require.NoError(t, err)
		for i := range 10_100 {
			require.ErrorIs(t, g.Do(t.Context(), fmt.Sprint("k", i), nothing), guard.ErrStore)
		}
		synctest.Wait()
		require.Equal(t, int64(10_000), pending.Load())
		require.Equal(t, int64(100), failed.Load())
		time.Sleep(3 * ttl)
		require.Equal(t, int64(10_100), failed.Load())
		require.NoError(t, g.Close(t.Context()), "all claims have expired")
	})
}

// The cleaner begins when Close has given it up: it must end at once.
func TestClose_returnsWhenTheStoreDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		hold(t, g, "k")
		thaw := store.freezeReleases()
		require.Error(t, closeWithin(t, g, time.Second))
		thaw()
	})
}
