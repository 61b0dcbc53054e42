package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestWithFair_isFirstInFirstOutAcrossProcesses(t *testing.T) {
	withFairGuards(t, 4, func(c *fairCalls) {
		var want []int
		for i := range 40 {
			i := i * 7 % 40 // the calls do not come in the order of their numbers
			want = append(want, i)
			c.call(c.t.Context(), i, 10*time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, want, c.ran)
		require.IsIncreasing(t, c.fences)
		for i, at := range c.at {
			require.Equal(t, time.Duration(i)*10*time.Millisecond, at, "the next call begins at once")
		}
	})
}

func TestWithFair_asksTwiceOnArrivalAndOnceWhenNotified(t *testing.T) {
	withFairGuards(t, 4, func(c *fairCalls) {
		for i := range 21 {
			c.call(c.t.Context(), i, 10*time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, 1+3*20, c.store.count(driver.OpAcquire))
		require.Equal(t, 21, c.store.count(driver.OpRelease))
	})
}

func TestWithFair_takesAFreeKeyInTwoRoundTrips(t *testing.T) {
	withFairGuards(t, 1, func(c *fairCalls) {
		c.call(c.t.Context(), 0, 0)
		c.all.Wait()
		require.Len(t, c.store.Calls(), 2)
	})
}

func TestWithFair_handsNothingOff(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		var handOffs int
		hook := guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if e.Grant == guard.GrantHandOff {
				handOffs++
			}
		}})
		for i := range 4 {
			c.call(c.t.Context(), i/2, time.Millisecond, hook)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 0, 1, 1}, c.ran)
		require.Zero(t, handOffs)
	})
}

func TestWithFair_aCallThatDoesNotWaitYieldsToTheQueue(t *testing.T) {
	withFairGuards(t, 1, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		c.addFrozenWaiter("frozen")
		time.Sleep(time.Second)
		synctest.Wait()
		c.call(c.t.Context(), 1, 0, guard.WithWait(0))
		require.Equal(t, driver.NotifyGrace, as[*guard.BusyError](t, c.err(1)).Left)
		time.Sleep(driver.NotifyGrace)
		c.call(c.t.Context(), 2, 0, guard.WithWait(0))
		require.NoError(t, c.err(2))
	})
}

func TestWithFair_deadWaitersDelayTheQueueByLessThanASecond(t *testing.T) {
	for dead := 1; dead <= 4; dead++ {
		for holds, most := range map[time.Duration]time.Duration{
			time.Second:      0, // they are known to be dead by then
			time.Millisecond: time.Duration(dead) * time.Second,
		} {
			t.Run(fmt.Sprint(dead, holds), func(t *testing.T) {
				withFairGuards(t, 1, func(c *fairCalls) {
					c.call(c.t.Context(), 0, holds)
					for i := range dead {
						c.addDeadWaiter(fmt.Sprint("dead ", i))
					}
					c.call(c.t.Context(), 1, 0)
					c.call(c.t.Context(), 2, 0)
					c.all.Wait()
					require.Equal(t, []int{0, 1, 2}, c.ran)
					require.LessOrEqual(t, c.at[1], holds+most)
				})
			})
		}
	}
}

// The process of the holder has died. It was also the process of the first waiter.
func TestWithFair_continuesWhenTheHolderHasDied(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		grant, err := c.store.memory.TryAcquire(c.t.Context(), driver.Claim{Key: "k", ID: "holder", TTL: ttl, Queue: driver.Queued})
		require.NoError(t, err)
		require.Equal(t, driver.Granted, grant.State)
		c.addDeadWaiter("dead")
		for i := range 5 {
			c.call(c.t.Context(), i, time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, c.ran)
		require.Less(t, c.at[0], ttl+time.Second)
	})
}

func TestWithFair_aCallThatGivesUpLeavesTheQueue(t *testing.T) {
	withFairGuards(t, 3, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		ctx, cancel := context.WithCancel(c.t.Context())
		c.call(ctx, 1, 0)
		c.call(c.t.Context(), 2, 0, guard.WithWait(500*time.Millisecond))
		c.call(c.t.Context(), 3, 0)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, c.err(1), context.Canceled)
		c.all.Wait()
		busy := as[*guard.BusyError](t, c.err(2))
		require.Equal(t, 500*time.Millisecond, busy.Waited)
		require.Equal(t, ttl-500*time.Millisecond, busy.Left)
		require.Equal(t, []int{0, 3}, c.ran)
		require.Equal(t, time.Second, c.at[1], "the calls that gave up do not delay the next call")
		require.Equal(t, 4, c.store.count(driver.OpRelease), "two positions in the queue and two leases")
	})
}

// The store notifies the first waiter at the very moment at which that waiter gives up.
func TestWithFair_aNotifiedCallThatGivesUpNotifiesTheNext(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		c.call(ctx, 1, 0)
		c.call(c.t.Context(), 2, 0)
		c.all.Wait()
		require.Equal(t, 2, c.ran[len(c.ran)-1])
		require.Less(t, c.at[len(c.at)-1], 1050*time.Millisecond)
	})
}

func TestWithFair_sharesDoneWithTheWholeQueue(t *testing.T) {
	withFairGuards(t, 3, func(c *fairCalls) {
		for i := range 10 {
			c.call(c.t.Context(), i, time.Second)
		}
		c.all.Wait()
		require.Equal(t, []int{0}, c.ran)
		for i := 1; i < 10; i++ {
			require.ErrorIs(t, c.err(i), guard.ErrDone)
		}
		require.Equal(t, time.Second, time.Since(c.begun))
	}, guard.WithOnce(time.Hour))
}

func TestWithFair_waitsForTheMinimumHold(t *testing.T) {
	withFairGuards(t, 3, func(c *fairCalls) {
		for i := range 4 {
			c.call(c.t.Context(), i, 0, guard.WithMinHold(2*time.Second))
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, c.ran)
		for i, at := range c.at {
			require.InDelta(t, 2*time.Second*time.Duration(i), at, float64(10*time.Millisecond))
		}
	})
}

func TestWithFair_keepsItsPositionWhenAnswersAreLost(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		lost := 0
		c.store.OnAcquire = func(ctx context.Context, n int, claim driver.Claim) (driver.Answer, error) {
			g, err := c.store.memory.TryAcquire(ctx, claim)
			if n%2 == 0 {
				lost++
				return driver.Answer{}, guardtest.Fail(driver.KindTimeout)
			}
			return g, err
		}
		for i := range 6 {
			c.call(c.t.Context(), i, 100*time.Millisecond)
			time.Sleep(5 * time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, c.ran)
		require.IsIncreasing(t, c.fences)
		require.Greater(t, lost, 5)
		time.Sleep(5 * time.Second) // the cleaner releases the orphans
		require.True(t, c.store.free("k"))
	})
}

func TestWithFair_pollsWithoutNotifications(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		c.store.silent = true
		for i := range 5 {
			c.call(c.t.Context(), i, time.Second)
		}
		c.all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, c.ran)
		require.Less(t, time.Since(c.begun), 5*time.Second+4*300*time.Millisecond)
	})
}

// A notification may come at the same time as the end of the subscription. The race detector
// checks that this is safe.
func TestWithFair_mayBeNotifiedOnceAfterItHasUnsubscribed(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		c.store.late = true
		want := make([]int, 200)
		for i := range want {
			want[i] = i
			c.call(c.t.Context(), i, time.Millisecond)
		}
		c.all.Wait()
		require.Equal(t, want, c.ran)
	})
}

func TestWithFair_closeEndsTheWait(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Second)
		c.call(c.t.Context(), 1, 0)
		c.call(c.t.Context(), 2, 0)
		require.NoError(t, c.guards[1].Close(c.t.Context()))
		c.all.Wait()
		require.ErrorIs(t, c.err(1), guard.ErrClosed)
		require.Equal(t, []int{0, 2}, c.ran)
		require.Equal(t, time.Second, c.at[1], "the call of the closed Guard has left the queue")
	})
}

func TestWithFair_reportsWaitsToHooks(t *testing.T) {
	withFairGuards(t, 2, func(c *fairCalls) {
		r := &recorder{}
		c.call(c.t.Context(), 0, 3*ttl, guard.WithLabel("the holder"))
		c.call(c.t.Context(), 1, 0, guard.WithHook(r.hook()))
		require.Equal(t, []string{"acquire start", "wait"}, r.seen())
		require.Equal(t, "the holder", last[guard.WaitEvent](t, r).Label)
		c.all.Wait()
		require.Equal(t, []string{"acquire start", "wait", "acquire end", "run start", "run end", "release"}, r.seen())
		e := last[guard.AcquireEvent](t, r)
		require.Equal(t, 3*ttl, e.Waited)
		require.Equal(t, "the holder", e.Previous)
		require.Empty(t, e.Grant)
	})
}

func TestWithFair_isRefusedIfTheBackendKeepsNoQueue(t *testing.T) {
	var refused *guard.SettingError
	_, err := guard.New(newTestStore(), guard.WithFair())
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithFair", refused.Setting)
	require.ErrorContains(t, err, "testStore")

	g := openGuard(t, newTestStore())
	refused = nil
	require.ErrorAs(t, g.Do(t.Context(), "k", nothing, guard.WithFair()), &refused)
	require.Equal(t, "WithFair", refused.Setting)
	_, err = g.Wrap("k", nothing, guard.WithFair())
	require.ErrorAs(t, err, &refused)
	require.NoError(t, g.Close(t.Context()))
}

func TestWithFair_aStoreErrorEndsACallWhoseTimeIsUp(t *testing.T) {
	withFairGuards(t, 1, func(c *fairCalls) {
		c.call(c.t.Context(), 0, time.Minute)
		c.store.OnAcquire = failing(guardtest.Fail(driver.KindConnection))
		start := time.Now()
		err := c.guards[0].Do(c.t.Context(), "k", nothing, guard.WithWait(2*time.Second))
		require.ErrorIs(t, err, guard.ErrStore)
		require.Less(t, time.Since(start), 10*time.Second)
	})
}
