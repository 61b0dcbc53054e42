package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// only leaves just the boxes of these numbers reachable.
func only(boxes []*box, up ...int) {
	for _, b := range boxes {
		b.kill()
	}
	for _, i := range up {
		boxes[i].heal()
	}
}

// A lateNode carries out a release after it has reported that it could not.
type lateNode struct{ *memory.Locker }

func (n lateNode) Release(_ context.Context, c driver.Claim, after driver.After) (bool, error) {
	time.AfterFunc(100*time.Millisecond, func() { _, _ = n.Locker.Release(context.Background(), c, after) })
	return false, guardtest.Fail(driver.KindConnection)
}

// A claim that is wanted is made again with its ID. A node that may still carry out the release of
// what it granted before must not count.
func TestTryAcquire_doesNotCountANodeWhereTheClaimMayBeReleasedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boxes := make([]*box, 4)
		for i := range boxes {
			boxes[i] = &box{store: memory.New(), asked: map[driver.Op]int{}}
		}
		late := lateNode{memory.New()}
		l := redlock.New(append(nodesOf(boxes), late))
		for _, b := range boxes[:3] {
			take(t, b, shared("reader"))
		}
		require.Equal(t, driver.HeldForClaim, try(t, l, waiting("writer")).Reason)
		synctest.Wait() // the grants of nodes 3 and 4 are released
		_, err := boxes[2].Release(t.Context(), shared("reader"), driver.After{})
		require.NoError(t, err)
		only(boxes, 2, 3)
		_, err = l.TryAcquire(t.Context(), waiting("writer"))
		require.Error(t, err)
		time.Sleep(time.Second)
		_, err = l.TryAcquire(t.Context(), waiting("writer 2"))
		require.NoError(t, err)
		time.Sleep(time.Hour)
	})
}
