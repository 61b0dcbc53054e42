package guard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestDo_insideDoCallsTheHooksOfBothCalls(t *testing.T) {
	var always, outer, inner recorder
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			return g.Do(ctx, "k", nothing, guard.WithHook(inner.hook()))
		}, guard.WithHook(outer.hook())))
		require.Equal(t, []string{"run start", "run end"}, inner.seen())
		require.True(t, last[guard.RunEndEvent](t, &inner).Joined)
		both := []string{"acquire start", "acquire end", "run start", "run start", "run end", "run end", "release"}
		require.Equal(t, both, outer.seen())
		require.Equal(t, both, always.seen())
	}, guard.WithHook(always.hook()))
}

func TestAcquire_insideDoEndsWithTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		require.ErrorIs(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			joined, err := g.Acquire(context.WithoutCancel(ctx), "k")
			require.NoError(t, err)
			require.NoError(t, joined.Context().Err())
			store.release(t, store.granted()[0].Claim, driver.After{})
			<-joined.Context().Done()
			require.ErrorIs(t, context.Cause(joined.Context()), guard.ErrLost)
			return nil
		}), guard.ErrLost)

		caller, cancel := context.WithCancel(t.Context())
		require.NoError(t, g.Do(t.Context(), "other", func(ctx context.Context) error {
			joined, err := g.Acquire(contextWithLease{caller, ctx}, "other")
			require.NoError(t, err)
			cancel()
			<-joined.Context().Done()
			require.NoError(t, ctx.Err(), "the end of the caller's context does not end the outer lease")
			return nil
		}))
	})
}

// contextWithLease ends with its Context and has the values of another context.
type contextWithLease struct {
	context.Context
	values context.Context
}

func (c contextWithLease) Value(key any) any { return c.values.Value(key) }

// A slow store must not delay a call much beyond the limit of WithWait.
func TestWait_isBoundedIfTheStoreIsSlow(t *testing.T) {
	for name, answer := range map[string]func(ctx context.Context) error{
		"the store answers late": func(ctx context.Context) error {
			select {
			case <-time.After(4 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		"the store does not answer": frozen,
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				if err := answer(ctx); err != nil {
					return driver.Answer{}, err
				}
				return store.memory.TryAcquire(ctx, c)
			}
			for _, opts := range [][]guard.Option{nil, {guard.WithFair()}} {
				start := time.Now()
				opts = append(opts, guard.WithWait(100*time.Millisecond))
				g := newGuard(t, &fairStore{testStore: store}, guard.WithTTL(ttl))
				require.ErrorIs(t, g.Do(t.Context(), "k", nothing, opts...), guard.ErrStore)
				require.LessOrEqual(t, time.Since(start), 1100*time.Millisecond)
			}
		})
	}
}

// A waiter whose Wait hook blocks keeps its position, but the waiters behind it may overtake.
func TestHook_Wait_thatBlocksDoesNotDelayTheQueue(t *testing.T) {
	for _, elsewhere := range []bool{true, false} {
		inBubbleOf(t, fmt.Sprint("held elsewhere: ", elsewhere), func(t *testing.T, g *guard.Guard, store *testStore) {
			var release func()
			if elsewhere {
				claim := store.acquireElsewhere(t, time.Hour)
				release = func() { store.release(t, claim, driver.After{}) }
			} else {
				lease := hold(t, g, "k")
				release = func() { require.NoError(t, lease.Release(t.Context())) }
			}
			c := newCallers(t, g)
			unblock := make(chan struct{})
			c.start(t.Context(), 0, guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { <-unblock }}))
			c.start(t.Context(), 10*time.Second)
			release()
			time.Sleep(time.Second)
			require.Equal(t, []int{1}, c.ran(), "the second call overtakes")
			c.start(t.Context(), 0)
			close(unblock)
			c.requireOrder(1, 0, 2)
		})
	}
}

// If a holder dies, the key stays idle for the rest of the holder's TTL. The TTLs of the waiters
// make no difference.
func TestWithFair_takesOverFromAHolderWithAShortTTL(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		const short = 500 * time.Millisecond
		c.call(c.t.Context(), 0, time.Second) // holds the key
		dying := driver.Claim{Key: "k", ID: "dying", Owner: "dying", TTL: short, Queue: driver.Queued}
		stop := c.store.Subscribe("k", "dying", func(time.Duration) {})
		grant, err := c.store.memory.TryAcquire(c.t.Context(), dying)
		require.NoError(c.t, err)
		require.Equal(c.t, driver.Busy, grant.State)
		for i := range 9 { // the claim keeps its position in the queue
			time.Sleep(100 * time.Millisecond)
			_, _ = c.store.memory.TryAcquire(c.t.Context(), dying)
			if i == 0 {
				c.call(c.t.Context(), 1, 0, guard.WithTTL(time.Minute))
			}
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		grant, err = c.store.memory.TryAcquire(c.t.Context(), dying)
		require.NoError(c.t, err)
		require.Equal(c.t, driver.Granted, grant.State)
		stop() // the holder dies
		died := time.Now()
		c.all.Wait()
		require.LessOrEqual(c.t, time.Since(died), short+300*time.Millisecond)
	})
}

// asyncStore is a testStore whose renewals are batches, which the test answers.
type asyncStore struct {
	*testStore
	renew func(ctx context.Context, claims []driver.Claim, done func(i int, a driver.Answer, err error))
}

func (s *asyncStore) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op == driver.OpRenew {
		s.renew(ctx, claims, done)
		return
	}
	driver.Each{Locker: s}.Start(ctx, op, claims, after, done)
}

// A backend that panics or ends its goroutine has not answered, so renewal continues.
func TestRenewal_continuesIfTheBackendPanics(t *testing.T) {
	for _, a := range aborts {
		inTimeOf(t, a.name, func(t *testing.T) {
			store := &asyncStore{testStore: newTestStore()}
			var calls atomic.Int32
			store.renew = func(ctx context.Context, claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
				if calls.Add(1) == 1 {
					done(0, driver.Answer{Held: true}, nil)
					a.abort()
				}
				driver.Each{Locker: store.memory}.Start(ctx, driver.OpRenew, claims, driver.After{}, done)
			}
			g := newGuard(t, store, guard.WithTTL(ttl))
			first, second := hold(t, g, "first"), hold(t, g, "second")
			time.Sleep(5 * ttl)
			require.Greater(t, calls.Load(), int32(10))
			require.NoError(t, first.Release(t.Context()))
			require.NoError(t, second.Release(t.Context()))
		})
	}
}

// An answer that comes after the renewal was given up counts no more, and Close does not wait for
// it.
func TestRenewal_endsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &asyncStore{testStore: newTestStore()}
		var mu sync.Mutex
		var late []func()
		store.renew = func(_ context.Context, claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
			mu.Lock()
			defer mu.Unlock()
			for i := range claims {
				late = append(late, func() { done(i, driver.Answer{Held: true}, nil) })
			}
		}
		g := openGuard(t, store, guard.WithTTL(ttl))
		lease := hold(t, g, "k")
		<-lease.Context().Done()
		require.Equal(t, guard.LossExpired, as[*guard.LostError](t, lease.Release(t.Context())).Reason)
		start := time.Now()
		require.NoError(t, g.Close(t.Context()))
		require.Zero(t, time.Since(start))
		for _, answer := range late {
			answer()
		}
	})
}

// Without an Async, renewals use a bounded number of goroutines. Calls that never return do
// not count towards the bound.
func TestRenewal_withoutBatchesTakesABoundedNumberOfGoroutines(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		const leases, most = 5000, 64
		var now, peak atomic.Int64
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			for n := now.Add(1); ; {
				if p := peak.Load(); n <= p || peak.CompareAndSwap(p, n) {
					break
				}
			}
			defer now.Add(-1)
			time.Sleep(time.Millisecond)
			return store.memory.Renew(ctx, c)
		}
		before := runtime.NumGoroutine()
		var held []*guard.Lease
		for i := range leases {
			held = append(held, hold(t, g, fmt.Sprint("k", i)))
		}
		goroutines := 0
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			goroutines = max(goroutines, runtime.NumGoroutine()-before)
		}
		require.LessOrEqual(t, peak.Load(), int64(most))
		require.Less(t, goroutines, 2*most+leases/128+20)
		require.Greater(t, store.count(driver.OpRenew), leases)
		for _, lease := range held {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// Renewals without an answer occupy all slots only for a limited time.
func TestRenewal_ofManyStuckKeysDoesNotDelayOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			if c.Key != "good" {
				return false, frozen(ctx)
			}
			return store.memory.Renew(ctx, c)
		}
		for i := range 200 {
			hold(t, g, fmt.Sprint("bad", i))
		}
		good := hold(t, g, "good")
		time.Sleep(5 * ttl)
		require.True(t, good.Valid())
		_ = closeWithin(t, g, time.Second)
	})
}
