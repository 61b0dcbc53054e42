package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// loseReplies has the next reply to a script lost at n nodes, with its connection.
func (q *quorum) loseReplies(n int) {
	for _, p := range q.proxies[:n] {
		p.DropReplyTo("evalsha", 1)
	}
}

func TestFault7_repliesLostOnAcquire(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	g := newGuard(t, q.locker(t))
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	for n := 1; n <= 5; n++ {
		key, ran := fmt.Sprint("k", n), 0
		q.loseReplies(n)
		require.NoError(t, g.Do(t.Context(), key, func(context.Context) error {
			ran++
			require.ErrorIs(t, newGuard(t, q.locker(t)).Do(t.Context(), key, nothing), guard.ErrBusy)
			return nil
		}), "its own claim is recognised if the replies of %d nodes that granted it are lost", n)
		require.Equal(t, 1, ran)
		q.requireFree(t, key, 3*time.Second)
	}
}

func TestFault7_repliesLostOnRenew(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	g := newGuard(t, q.locker(t), guard.WithTTL(renewed))
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)
	for _, n := range []int{1, 2, 3, 5} {
		dropped := q.proxies[0].Dropped()
		q.loseReplies(n)
		require.Eventually(t, func() bool { return q.proxies[0].Dropped() > dropped }, 20*ttl, time.Millisecond, "a reply was lost")
		require.Never(t, func() bool { return !lease.Valid() }, ttl, 5*time.Millisecond)
	}
	require.Equal(t, 5, q.held(t, lease))
	require.NoError(t, lease.Release(t.Context()))
	q.requireFree(t, "k", ttl)
}

func TestFault7_repliesLostOnRelease(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	g := newGuard(t, q.locker(t))
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	for n := 1; n <= 5; n++ {
		for name, opts := range map[string][]guard.Option{"plain": nil, "once": {guard.WithOnce(time.Minute)}} {
			key := fmt.Sprint(name, n)
			require.NoError(t, g.Do(t.Context(), key, func(context.Context) error {
				require.Eventually(t, func() bool { return len(q.present(t, key)) == 5 }, time.Second, 5*time.Millisecond)
				q.loseReplies(n)
				return nil
			}, opts...), "a release is no failure if the replies of %d nodes that did it are lost", n)
			if opts == nil {
				q.requireFree(t, key, 3*time.Second)
				continue
			}
			require.Eventually(t, func() bool {
				done, held := 0, 0
				for _, i := range q.present(t, key) {
					switch look(t, single.New(q.direct[i]), key).state {
					case driver.Done:
						done++
					case driver.Busy:
						held++
					case driver.Granted:
					}
				}
				return done >= 3 && held == 0
			}, 5*time.Second, 20*time.Millisecond, "a majority has the marker, and nobody the lease")
		}
	}
}
