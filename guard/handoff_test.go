package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// granted returns the acquire calls that were granted.
func (s *testStore) granted() (calls []guardtest.Call) {
	for _, call := range s.Calls() {
		if call.Op == driver.OpAcquire && call.Grant.State == driver.Granted {
			calls = append(calls, call)
		}
	}
	return calls
}

// released returns the claims that were released.
func (s *testStore) released() (claims []driver.Claim) {
	for _, call := range s.Calls() {
		if call.Op == driver.OpRelease {
			claims = append(claims, call.Claim)
		}
	}
	return claims
}

func TestHandOff_needsNoStore(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		for range 11 {
			c.start(t.Context(), time.Millisecond)
		}
		start := time.Now()
		c.requireOrder(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		require.Equal(t, 11*time.Millisecond, time.Since(start))
		granted := store.granted()
		require.Len(t, granted, 2)
		require.Zero(t, granted[0].Claim.Fences.Reserve, "no waiter was in the queue yet")
		require.NotZero(t, granted[1].Claim.Fences.Reserve)
		require.Len(t, store.released(), 2)
		require.Equal(t, granted[1].Grant.Fence, c.fence(1))
		require.Equal(t, granted[1].Grant.Fence+9, c.fence(10))
		require.Equal(t, granted[1].Claim.ID, store.released()[1].ID)
		require.Equal(t, c.fence(10), store.released()[1].Fence)
		require.True(t, store.free("k"))
	})
}

// After a hand-off, a renewal carries the fence in use and the number of fences still reserved. A
// node that has lost its data restores both.
func TestHandOff_isRenewedUnderTheFenceInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		for range 4 {
			c.start(t.Context(), time.Millisecond)
		}
		last := c.start(t.Context(), ttl)
		c.all.Wait()
		granted := store.granted()[1]
		renewed := false
		for _, call := range store.Calls() {
			if call.Op == driver.OpRenew {
				renewed = true
				require.Equal(t, granted.Claim.ID, call.Claim.ID)
				require.Equal(t, c.fence(last), call.Claim.Fence)
				require.Equal(t, granted.Claim.Fences.Reserve, int(call.Claim.Fence-granted.Grant.Fence)+call.Claim.Fences.Reserve)
			}
		}
		require.True(t, renewed)
	})
}

func TestHandOff_doesNotHappenWithALostLease(t *testing.T) {
	for name, f := range map[string]func(g *guard.Guard){
		"expired":   func(*guard.Guard) { time.Sleep(ttl) },
		"suspended": func(g *guard.Guard) { guard.SetSuspended(g, func() time.Duration { return time.Hour }) },
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			guard.SetSuspended(g, func() time.Duration { return 0 })
			store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, errors.New("unreachable") }
			c := newCallers(t, g)
			for range 2 {
				c.start(t.Context(), time.Millisecond)
			}
			c.startFunc(t.Context(), func(context.Context) error { f(g); return nil })
			c.start(t.Context(), 0)
			c.fail(2, guard.ErrLost)
			c.requireOrder(0, 1, 2, 3)
			require.Len(t, store.granted(), 3)
		})
	}
}

func TestHandOff_reportsALossToTheCurrentHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = notHeld
		c := newCallers(t, g)
		for range 3 {
			c.start(t.Context(), time.Millisecond)
		}
		var ended time.Duration
		var cause error
		var r recorder
		c.startFunc(t.Context(), func(ctx context.Context) error { return untilEnd(&ended, &cause)(ctx) }, guard.WithHook(r.hook()))
		c.start(t.Context(), 0)
		time.Sleep(ttl)
		store.release(t, store.granted()[1].Claim, driver.After{})
		c.fail(3, guard.ErrLost)
		c.requireOrder(0, 1, 2, 3, 4)
		require.LessOrEqual(t, ended, ttl/3)
		require.Contains(t, r.seen(), "loss")
		require.Len(t, store.granted(), 3, "the next call asks the store")
	})
}

// The lease is handed off while a renewal is under way. The answer then applies to the next hold.
func TestHandOff_appliesTheAnswerToARenewalToTheNextHold(t *testing.T) {
	for name, held := range map[string]bool{"held": true, "not held": false} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			answer := make(chan struct{})
			store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
				if n == 2 {
					defer time.Sleep(60 * time.Millisecond) // so that the renewal is due soon
				}
				return store.memory.TryAcquire(ctx, c)
			}
			store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { <-answer; return held, nil }
			c := newCallers(t, g)
			c.start(t.Context(), time.Millisecond)
			c.start(t.Context(), 7*time.Millisecond) // the renewal becomes due meanwhile
			c.start(t.Context(), time.Millisecond)
			lost := false
			var valid time.Duration
			c.startFunc(t.Context(), func(ctx context.Context) error {
				require.Equal(t, 1, store.count(driver.OpRenew))
				require.Len(t, store.granted(), 2)
				close(answer)
				synctest.Wait()
				lost = ctx.Err() != nil
				start := time.Now()
				<-ctx.Done()
				valid = time.Since(start)
				return nil
			})
			c.all.Wait()
			require.Equal(t, !held, lost)
			require.ErrorIs(t, c.end(3).err, guard.ErrLost)
			if held {
				require.Greater(t, valid, time.Second, "the lease was renewed repeatedly")
			}
		}, guard.WithTTL(guard.MinTTL*2), guard.WithMaxHold(2*time.Second))
	}
}

func TestHandOff_isReportedToHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		var rs [4]recorder
		for i := range rs {
			c.start(t.Context(), time.Millisecond, guard.WithHook(rs[i].hook()), guard.WithLabel([]string{"a", "b", "c", "d"}[i]))
		}
		c.requireOrder(0, 1, 2, 3)
		for i := range rs {
			waited := []string{"acquire start", "wait", "acquire end", "run start", "run end", "release"}
			if i == 0 {
				waited = append(waited[:1:1], waited[2:]...)
			}
			require.Equal(t, waited, rs[i].seen())
			acquired, released := last[guard.AcquireEvent](t, &rs[i]), last[guard.ReleaseEvent](t, &rs[i])
			require.Equal(t, i >= 2, acquired.Grant == guard.GrantHandOff)
			require.Equal(t, i == 1 || i == 2, released.HandedOff)
			require.Equal(t, []int{1, 1, 0, 0}[i], acquired.Attempts)
			require.Equal(t, []int{1, 0, 0, 1}[i], released.Attempts)
			require.Equal(t, driver.Granted, acquired.State)
			require.Equal(t, c.fence(i), acquired.Fence)
			require.Equal(t, c.fence(i), released.Fence)
			require.Equal(t, acquired.Owner, released.Owner)
			require.NoError(t, released.Err)
			require.Equal(t, time.Duration(i)*time.Millisecond, acquired.Waited)
			require.Equal(t, []string{"", "a", "b", "c"}[i], acquired.Previous)
			require.NotEqual(t, guard.GrantTakeover, acquired.Grant)
			require.Equal(t, time.Millisecond, released.Held)
		}
		require.Equal(t, store.granted()[1].Claim.ID, last[guard.ReleaseEvent](t, &rs[3]).Owner)
	})
}

func TestHandOff_worksWithAcquireAndRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		c := newCallers(t, g)
		c.start(t.Context(), time.Millisecond)
		c.start(t.Context(), time.Millisecond)
		leases := make(chan *guard.Lease)
		go func() {
			lease, err := g.Acquire(t.Context(), "k", guard.WithWait(time.Minute))
			assert.NoError(t, err)
			leases <- lease
		}()
		synctest.Wait()
		c.startFunc(t.Context(), func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			require.True(t, lease.Valid())
			require.NoError(t, g.Do(ctx, "k", nothing), "the inner call joins the lease")
			time.Sleep(time.Millisecond)
			return nil
		})
		lease := <-leases
		require.True(t, lease.Valid())
		time.Sleep(time.Millisecond)
		require.NoError(t, lease.Release(t.Context()))
		require.False(t, lease.Valid())
		require.ErrorIs(t, context.Cause(lease.Context()), guard.ErrReleased)
		require.NoError(t, lease.Release(t.Context()), "a second release does nothing")
		c.requireOrder(0, 1, 2)
		require.Len(t, store.granted(), 2)
		require.Greater(t, c.fence(2), lease.Fence())
	})
}

// The claim may have reached the store twice. The last hold of the tenure leaves it to the
// cleaner.
func TestHandOff_leavesTheCleanUpToTheLastHold(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
			if n == 2 {
				go func() {
					time.Sleep(200 * time.Millisecond)
					_, _ = store.memory.TryAcquire(context.Background(), c)
				}()
				return driver.Answer{}, errors.New("the connection was reset")
			}
			return store.memory.TryAcquire(ctx, c)
		}
		c := newCallers(t, g)
		for range 4 {
			c.start(t.Context(), time.Millisecond)
		}
		c.requireOrder(0, 1, 2, 3)
		require.Len(t, store.granted(), 2)
		time.Sleep(250 * time.Millisecond)
		require.False(t, store.free("k"), "the late request has been granted by now")
		time.Sleep(time.Second)
		require.True(t, store.free("k"))
	})
}

// A waiter that takes the lease too late releases it and joins the queue again.
func TestHandOff_toACallThatComesTooLateIsRejected(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, errors.New("unreachable") }
		c := newCallers(t, g)
		c.start(t.Context(), time.Millisecond)
		c.start(t.Context(), time.Millisecond)
		c.start(t.Context(), time.Millisecond, guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { time.Sleep(2 * ttl) }}))
		c.start(t.Context(), time.Millisecond)
		c.requireOrder(0, 1, 3, 2)
		for i := range 4 {
			require.NoError(t, c.end(i).err)
		}
	})
}

// The successor's context ends at the very moment of the hand-off: it may notice either first.
func TestHandOff_toACallThatLeavesGoesToTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			c := newCallers(t, g)
			c.start(t.Context(), time.Millisecond)
			c.startFunc(t.Context(), func(context.Context) error {
				time.Sleep(time.Millisecond)
				cancel()
				return nil
			})
			c.start(ctx, time.Millisecond)
			c.start(t.Context(), time.Millisecond)
			c.requireOrder(0, 1, 3)
			require.ErrorIs(t, c.end(2).err, context.Canceled)
			require.True(t, store.free("k"))
		}
	})
}
