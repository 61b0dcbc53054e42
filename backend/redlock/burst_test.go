package redlock_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// Not parallel: it counts goroutines.
func TestLong_aFrozenNodeDoesNotPileUpCalls(t *testing.T) {
	leftout.IfShort(t)
	for name, wrap := range map[string]func(guard.Locker) guard.Locker{
		"started":                   func(l guard.Locker) guard.Locker { return l },
		"a goroutine for each call": func(l guard.Locker) guard.Locker { return bare{l} },
	} {
		t.Run(name, func(t *testing.T) {
			q := startQuorum(t, 5)
			var nodes []guard.Locker
			// past the proxies, which have goroutines for each connection
			for _, s := range q.servers {
				nodes = append(nodes, wrap(single.New(s.Client(t))))
			}
			q.burst(t, newGuard(t, redlock.New(nodes)))
		})
	}
}

// A bare Locker has none of the abilities of the one inside.
type bare struct{ guard.Locker }

func (q *quorum) burst(t *testing.T, g *guard.Guard) {
	const workers = 32
	var keys, failed atomic.Int64
	burst := func(d time.Duration) (peak int) {
		end := time.Now().Add(d)
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for time.Now().Before(end) {
					if g.Do(t.Context(), fmt.Sprint("k", keys.Add(1)), nothing) != nil {
						failed.Add(1)
					}
				}
			})
		}
		for time.Now().Before(end) {
			peak = max(peak, runtime.NumGoroutine())
			time.Sleep(5 * time.Millisecond)
		}
		all.Wait()
		return peak
	}
	burst(200 * time.Millisecond)
	var base int
	require.Eventually(t, func() bool { // until workers and timers of the warm-up have ended
		was := base
		base = runtime.NumGoroutine()
		return base == was
	}, 5*time.Second, 200*time.Millisecond)

	q.servers[4].Freeze()
	before := keys.Load()
	peak := burst(1500 * time.Millisecond)
	q.servers[4].Thaw()
	calls := keys.Load() - before
	t.Logf("%d runs, %d goroutines before and %d at most", calls, base, peak)
	require.Greater(t, calls, int64(150), "runs go on: if each waited for the node, there would be fewer than a hundred")
	require.Zero(t, failed.Load())
	require.Less(t, peak, base+200+int(calls)*3/4, "what the node was asked before it was found stuck, and no more")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= base+10 }, 5*time.Second, 50*time.Millisecond)
}

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
