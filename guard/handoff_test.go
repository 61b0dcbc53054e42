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
