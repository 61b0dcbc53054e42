package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// requireGranted makes a hundred claims of different keys at once, of which each has to be
// granted.
func requireGranted(t *testing.T, l guard.Locker, prefix string) (wait func()) {
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { take(t, l, claimOf(fmt.Sprint(prefix, i), fmt.Sprint(prefix, i))) })
	}
	return all.Wait
}

func TestTryAcquire_asksANodeThatIsStuckOnceASecondUntilItHasAnswered(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		boxes[4].freeze()
		requireGranted(t, l, "a")()
		time.Sleep(time.Second)
		requireGranted(t, l, "b")()
		require.Equal(t, 101, boxes[4].count(driver.OpAcquire))
		boxes[4].heal()
		time.Sleep(time.Second)
		requireGranted(t, l, "c")()
		synctest.Wait()
		require.GreaterOrEqual(t, boxes[4].count(driver.OpAcquire), 200)
	})
}

func TestTryAcquire_nodesThatAreAllSlowAreNotTakenForStuck(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, l *redlock.Locker, boxes []*box) {
		for _, b := range boxes {
			b.answerAfter(func() time.Duration { return 2 * time.Second })
		}
		first := requireGranted(t, l, "a")
		time.Sleep(time.Second)
		requireGranted(t, l, "b")()
		first()
	})
}
