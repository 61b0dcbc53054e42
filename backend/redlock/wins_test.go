package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// hanging is a node that does not answer renewals.
func hanging(b *box) guard.Locker {
	return &guardtest.Scripted{Inner: b, OnRenew: func(ctx context.Context, _ int, _ driver.Claim) (bool, error) {
		return false, guardtest.Hang(ctx)
	}}
}

// A vote that arrives between the win and its failure is released as well.
func TestTryAcquire_aWinThatFailsReleasesLateGrants(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
		boxes[0].ahead = time.Second // the others have to be raised
		boxes[3].answerAfter(func() time.Duration { return 100 * time.Millisecond })
		boxes[4].kill()
		l := redlock.New([]guard.Locker{boxes[0], hanging(boxes[1]), boxes[2], hanging(boxes[3]), boxes[4]})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.TryAcquire(ctx, claimOf("k", "a"))
		require.ErrorIs(t, err, guard.ErrStore)
		time.Sleep(500 * time.Millisecond)
		for i, b := range boxes {
			require.Zero(t, b.fence(t, "k", "a"), "node %d", i)
		}
	})
}

// The nodes that grant the claim first do not all take the fence. A node that grants it later does.
func TestTryAcquire_aLateGrantCompletesAWin(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Second} { // the late fence is lower, or higher
		inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
			boxes[0].ahead, boxes[3].ahead = time.Second, ahead
			late := 100 * time.Millisecond // of the first answer only
			boxes[3].answerAfter(func() time.Duration { defer func() { late = 0 }(); return late })
			boxes[4].kill()
			l := redlock.New([]guard.Locker{boxes[0], hanging(boxes[1]), boxes[2], boxes[3], boxes[4]})
			start := time.Now()
			c := take(t, l, claimOf("k", "a"))
			require.Equal(t, 100*time.Millisecond, time.Since(start))
			for _, i := range []int{0, 2, 3} {
				require.Equal(t, c.Fence, boxes[i].fence(t, "k", "a"), "node %d", i)
			}
		})
	}
}

// A node that is frozen could complete the win. The caller does not wait until it does.
func TestTryAcquire_aWinThatFailsWaitsLittleForOtherNodes(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
		boxes[0].ahead = time.Second // the others have to be raised
		boxes[3].freeze()
		boxes[4].kill()
		fails := &guardtest.Scripted{Inner: boxes[2], OnRenew: func(context.Context, int, driver.Claim) (bool, error) {
			return false, guardtest.Fail(driver.KindConnection)
		}}
		start := time.Now()
		_, err := redlock.New([]guard.Locker{boxes[0], boxes[1], fails, boxes[3], boxes[4]}).TryAcquire(t.Context(), claimOf("k", "a"))
		requireNoQuorum(t, err, driver.OpAcquire)
		require.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

func TestTryAcquire_aWinThatCannotBeCompletedFailsAtOnce(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, _ *redlock.Locker, boxes []*box) {
		boxes[0].ahead = time.Second // the others have to be raised
		boxes[3].kill()
		boxes[4].kill()
		fails := &guardtest.Scripted{Inner: boxes[2], OnRenew: func(context.Context, int, driver.Claim) (bool, error) {
			return false, guardtest.Fail(driver.KindConnection)
		}}
		start := time.Now()
		_, err := redlock.New([]guard.Locker{boxes[0], hanging(boxes[1]), fails, boxes[3], boxes[4]}).TryAcquire(t.Context(), claimOf("k", "a"))
		requireNoQuorum(t, err, driver.OpAcquire)
		require.Zero(t, time.Since(start))
	})
}
