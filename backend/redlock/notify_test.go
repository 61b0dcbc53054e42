package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// waits has g wait for the key in the background.
func waits(g *guard.Guard, key string) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- g.Do(context.Background(), key, nothing, guard.WithWait(guard.Forever)) }()
	return ended
}

// listened waits until that many nodes have a subscriber that has asked once more since.
func (q *quorum) listened(t *testing.T, nodes int) {
	t.Helper()
	require.Eventually(t, func() bool {
		n := 0
		for _, rdb := range q.direct {
			if channels, err := rdb.PubSubChannels(t.Context(), "*").Result(); err == nil && len(channels) > 0 {
				n++
			}
		}
		return n == nodes
	}, time.Minute, 20*time.Millisecond)
	time.Sleep(300 * time.Millisecond) // no event says that the subscriber has asked
}

func TestNotify_aReleaseWakesAWaiterWhileAMinorityIsDown(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	long := guard.WithTTL(time.Minute) // a waiter that was not notified would wait for half of that
	holder, waiter := newGuard(t, q.locker(t), long), newGuard(t, q.locker(t), long)
	for _, down := range []int{0, 2} {
		for i := range down {
			q.servers[i].Kill()
		}
		for range 3 {
			lease, err := holder.Acquire(t.Context(), "k")
			require.NoError(t, err)
			ended := waits(waiter, "k")
			up := q.quorumOf(down)
			up.listened(t, 5-down)
			start := time.Now()
			require.NoError(t, lease.Release(t.Context()))
			require.NoError(t, <-ended)
			require.Less(t, time.Since(start), 15*time.Second)
		}
	}
}

// quorumOf returns the servers but for the first ones.
func (q *quorum) quorumOf(but int) *quorum {
	return &quorum{servers: q.servers[but:], proxies: q.proxies[but:], direct: q.direct[but:]}
}

func TestNotify_aWaiterDoesNotWakeItselfByGivingBackWhatTheHolderHasNot(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	long := guard.WithTTL(time.Minute)
	holder, waiter := newGuard(t, q.locker(t), long), newGuard(t, q.locker(t), long)
	lease, err := holder.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(q.present(t, "k")) == 5 }, time.Minute, 5*time.Millisecond)
	for _, rdb := range q.direct[:2] {
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
	}
	ended := waits(waiter, "k")
	q.listened(t, 5)
	for _, s := range q.servers {
		s.ResetStats(t)
	}
	time.Sleep(time.Second) // in which nothing should be asked
	require.Less(t, q.servers[4].Calls(t)["evalsha"], int64(10))
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, <-ended)
}
