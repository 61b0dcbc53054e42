package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Answers take a random time, so that each node has another clock in its hands when it grants.
func TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer(t *testing.T) {
	for _, c := range []struct {
		ahead []time.Duration
		raise bool
	}{
		{[]time.Duration{0, 0, 0, 0, 0}, false},
		{[]time.Duration{0, time.Millisecond, 2 * time.Millisecond, 0, time.Millisecond}, false},
		{[]time.Duration{0, 0, 0, 0, 8 * time.Millisecond}, false},
		// only the caller's differs
		{[]time.Duration{time.Hour, time.Hour, time.Hour, time.Hour, time.Hour}, false},
		// but only when that one is among the first
		{[]time.Duration{0, 0, 0, 0, time.Second}, true},
		{[]time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}, true},
		{[]time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second}, true},
	} {
		t.Run(fmt.Sprint(c.ahead), func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
				renewals := func() (n int) {
					for _, b := range boxes {
						n += b.count(driver.OpRenew)
					}
					return n
				}
				for i, b := range boxes {
					b.ahead = c.ahead[i]
					b.answerAfter(func() time.Duration { return time.Duration(500+rand.IntN(1500)) * time.Microsecond })
				}
				take(t, l, claimOf("first", "a")) // tells the clocks
				synctest.Wait()
				time.Sleep(time.Second)
				before := renewals()
				counts := func(b *box) []int { return []int{b.count(driver.OpAcquire), b.count(driver.OpRelease)} }
				var already [][]int
				for _, b := range boxes {
					already = append(already, counts(b))
				}
				var last uint64
				for i := range 50 {
					claim := take(t, l, claimOf("k", fmt.Sprint("a", i)))
					require.Greater(t, claim.Fence, last)
					last = claim.Fence
					_, err := l.Release(t.Context(), claim, driver.After{})
					require.NoError(t, err)
					time.Sleep(50 * time.Millisecond)
				}
				if c.raise {
					require.Greater(t, renewals(), before)
				} else {
					require.Equal(t, before, renewals())
					synctest.Wait()
					for i, b := range boxes {
						require.Equal(t, []int{already[i][0] + 50, already[i][1] + 50}, counts(b), "node %d", i)
					}
				}
			})
		})
	}
}

func TestFence_ofAJoiningCallIsThatOfTheFirstHold(t *testing.T) {
	servers := redistest.StartN(t, 5)
	var nodes []guard.Locker
	for _, s := range servers {
		nodes = append(nodes, reentrant.New(s.Client(t)))
	}
	here, there := redlock.New(nodes), redlock.New(nodes)
	onAll := func(l *redlock.Locker, c driver.Claim) {
		t.Helper()
		require.Eventually(t, func() bool {
			// one renewal is not enough if a node is still releasing an earlier claim
			held, err := l.Renew(t.Context(), c)
			require.NoError(t, err)
			require.True(t, held)
			for _, n := range nodes {
				if held, err := n.Renew(t.Context(), c); err != nil || !held {
					return false
				}
				g, err := n.TryAcquire(t.Context(), c)
				require.NoError(t, err)
				if !g.Held || g.Fence != c.Fence {
					return false
				}
			}
			return true
		}, time.Minute, 20*time.Millisecond)
	}
	owned := func(id string) driver.Claim {
		return driver.Claim{Key: "k", ID: id, Owner: "import", TTL: time.Minute}
	}
	first := take(t, here, owned("first"))
	onAll(here, first)
	for i, s := range servers {
		// One node at a time forgets, and would grant another fence to a claim that joins.
		require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
		second := take(t, there, owned(fmt.Sprint("second", i)))
		require.Equal(t, first.Fence, second.Fence, "node %d is missing", i)
		onAll(here, first)
		onAll(there, second)
		released, err := there.Release(t.Context(), second, driver.After{})
		require.NoError(t, err)
		require.True(t, released)
	}
	g, err := there.TryAcquire(t.Context(), claimOf("k", "other"))
	require.NoError(t, err)
	require.Equal(t, driver.Busy, g.State)
	_, err = here.Release(t.Context(), first, driver.After{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		g, err = there.TryAcquire(t.Context(), claimOf("k", "other"))
		return err == nil && g.State == driver.Granted
	}, time.Minute, 10*time.Millisecond, "nothing is left behind")
	require.Greater(t, g.Fence, first.Fence)
}
