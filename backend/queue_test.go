package backend_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// onEachQueue runs f on each backend, with a server of its own.
func onEachQueue(t *testing.T, f func(t *testing.T, l guard.Locker, rdb *redis.Client)) {
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			f(t, backend(rdb), rdb)
		})
	}
}

// queued returns a claim that joins the queue.
func queued(id string) driver.Claim {
	return driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute, Queue: driver.Queued}
}

func try(t *testing.T, l guard.Locker, c driver.Claim) driver.Answer {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	return g
}

// keyLike returns the one key whose name contains that part, or "".
func keyLike(t *testing.T, rdb *redis.Client, part string) string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*"+part+"*").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, len(keys), 1)
	return strings.Join(keys, "")
}

func TestQueue_isServedByAServerWhoseMemoryIsFull(t *testing.T) {
	t.Parallel()
	onEachQueue(t, func(t *testing.T, l guard.Locker, rdb *redis.Client) {
		require.Equal(t, driver.Granted, try(t, l, queued("a")).State)
		require.Equal(t, driver.Busy, try(t, l, queued("b")).State)
		require.Equal(t, driver.Busy, try(t, l, queued("c")).State)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		_, err := l.TryAcquire(t.Context(), queued("d"))
		require.ErrorIs(t, err, guard.ErrStore)
		_, err = l.Release(t.Context(), queued("b"), driver.After{}) // leaves the queue
		require.NoError(t, err)
		held, err := l.Release(t.Context(), queued("a"), driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		notified, err := rdb.HGet(t.Context(), keyLike(t, rdb, "waiters"), " notified").Result()
		require.NoError(t, err)
		require.Regexp(t, "^c ", notified)
		require.Equal(t, driver.Granted, try(t, l, queued("c")).State)
	})
}

func TestQueue_deadWaitersDoNotAccumulate(t *testing.T) {
	t.Parallel()
	onEachQueue(t, func(t *testing.T, l guard.Locker, rdb *redis.Client) {
		require.Equal(t, driver.Granted, try(t, l, queued("holder")).State)
		first := queued("first")
		require.Equal(t, driver.Busy, try(t, l, first).State)
		for i := range 500 {
			dies := queued(fmt.Sprint("dies", i))
			dies.TTL = time.Millisecond
			require.Equal(t, driver.Busy, try(t, l, dies).State)
		}
		require.Less(t, rdb.ZCard(t.Context(), keyLike(t, rdb, "queue")).Val(), int64(100))
		waiters := keyLike(t, rdb, "waiters")
		require.Less(t, rdb.HLen(t.Context(), waiters).Val(), int64(100))
		require.Zero(t, try(t, l, first).Ahead)

		for i := range 300 { // Lockers that were unresponsive, and never came back
			require.NoError(t, rdb.HSet(t.Context(), waiters, fmt.Sprint(" unresponsive ", i), "").Err())
		}
		require.Equal(t, driver.Busy, try(t, l, queued("second")).State)
		_, err := l.Release(t.Context(), queued("holder"), driver.After{})
		require.NoError(t, err)
		time.Sleep(driver.NotifyGrace) // the first does not ask: only time shows that to the server
		require.Equal(t, driver.Granted, try(t, l, queued("third")).State, "the Locker of the others is unresponsive")
		require.EqualValues(t, 1, rdb.ZCard(t.Context(), keyLike(t, rdb, "queue")).Val(), "the second stays")
		require.Less(t, rdb.HLen(t.Context(), waiters).Val(), int64(100))
	})
}

// Waiters that never had a subscriber, and whose Locker does not answer, keep their positions as
// long as there are few of them.
func TestQueue_skipsABoundedNumberOfWaitersThatHaveGone(t *testing.T) {
	t.Parallel()
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			gone, other, rdb := backend(server.Client(t)), backend(server.Client(t)), server.Client(t)
			require.Equal(t, driver.Granted, try(t, other, queued("holder")).State)
			for i := range 500 {
				require.Equal(t, driver.Busy, try(t, gone, queued(fmt.Sprint("gone", i))).State)
			}
			_, err := other.Release(t.Context(), queued("holder"), driver.After{})
			require.NoError(t, err)
			time.Sleep(driver.NotifyGrace) // only time shows the server that the first does not ask
			require.Equal(t, driver.Granted, try(t, other, queued("next")).State)
			require.EqualValues(t, 100, rdb.ZCard(t.Context(), keyLike(t, rdb, "queue")).Val())
			require.Equal(t, "gone1", rdb.ZRange(t.Context(), keyLike(t, rdb, "queue"), 0, 0).Val()[0])
		})
	}
}

func TestQueue_isDeletedWithItsLastWaiter(t *testing.T) {
	t.Parallel()
	onEachQueue(t, func(t *testing.T, l guard.Locker, rdb *redis.Client) {
		for _, id := range []string{"a", "b", "c"} {
			try(t, l, queued(id))
		}
		for _, id := range []string{"a", "b", "c"} {
			require.Equal(t, driver.Granted, try(t, l, queued(id)).State)
			held, err := l.Release(t.Context(), queued(id), driver.After{})
			require.NoError(t, err)
			require.True(t, held)
		}
		require.Empty(t, keyLike(t, rdb, "waiters"))
		require.Empty(t, keyLike(t, rdb, "queue"))
	})
}

// The connections of subscriptions break, and are made again.
func TestQueue_aWaiterWhoseConnectionBreaksKeepsItsPosition(t *testing.T) {
	t.Parallel()
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			rdb := server.Client(t)
			var guards []*guard.Guard
			for range 3 {
				g, err := guard.New(backend(server.Client(t)), guard.WithFair(), guard.WithWait(time.Minute), guard.WithTTL(time.Minute))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
				guards = append(guards, g)
			}
			lease, err := guards[0].Acquire(t.Context(), "k")
			require.NoError(t, err)
			var ran []int
			var longest time.Duration // from one run to the next
			var all sync.WaitGroup
			released := time.Time{}
			for i := range 9 {
				all.Go(func() {
					assert.NoError(t, guards[i%3].Do(t.Context(), "k", func(context.Context) error {
						ran = append(ran, i) // one at a time
						longest, released = max(longest, time.Since(released)), time.Now()
						return nil
					}))
				})
				require.Eventually(t, func() bool {
					queue := keyLike(t, rdb, "queue")
					return queue != "" && rdb.ZCard(t.Context(), queue).Val() == int64(i+1)
				}, settled, time.Millisecond)
			}
			killed := map[string]bool{} // connections, by ID
			subscribed := func() bool {
				waiters, err := rdb.HVals(t.Context(), keyLike(t, rdb, "waiters")).Result()
				require.NoError(t, err)
				n := 0
				for _, waiter := range waiters {
					if strings.HasPrefix(waiter, "L") {
						n++
					}
				}
				connections := 0
				for _, id := range subscribers(t, rdb) {
					if !killed[id] {
						connections++
					}
				}
				return n == 9 && connections == 3 && len(rdb.PubSubChannels(t.Context(), "*").Val()) == 3
			}
			require.Eventually(t, subscribed, settled, time.Millisecond)
			for _, id := range subscribers(t, rdb) {
				killed[id] = true
			}
			require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
			require.Eventually(t, subscribed, settled, time.Millisecond)
			released = time.Now()
			_ = lease.Release(t.Context()) // on a busy machine, it goes on for longer than the call
			all.Wait()
			require.Len(t, ran, 9)
			// otherwise the machine has paused, and others passed the first
			if longest < driver.NotifyGrace {
				require.IsIncreasing(t, ran)
			}
		})
	}
}

// subscribers returns the IDs of the connections that are subscribed to something.
func subscribers(t *testing.T, rdb *redis.Client) (ids []string) {
	t.Helper()
	list, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids
}

func TestQueue_aClaimThatTheServerRefusesKeepsItsPosition(t *testing.T) {
	t.Parallel()
	onEachQueue(t, func(t *testing.T, l guard.Locker, rdb *redis.Client) {
		release := func(id string) {
			_, err := l.Release(t.Context(), queued(id), driver.After{})
			require.NoError(t, err)
		}
		for inTime := false; !inTime; {
			require.Equal(t, driver.Granted, try(t, l, queued("a")).State)
			require.Equal(t, driver.Busy, try(t, l, queued("b")).State)
			require.Equal(t, driver.Busy, try(t, l, queued("c")).State)
			notified := time.Now()
			release("a")
			counter := keyLike(t, rdb, "}:fence")
			require.NoError(t, rdb.Set(t.Context(), counter, "nan", 0).Err())
			_, err := l.TryAcquire(t.Context(), queued("b"))
			require.ErrorContains(t, err, counter)
			require.NoError(t, rdb.Del(t.Context(), counter).Err())
			g := try(t, l, queued("c"))
			// otherwise, the machine has paused, and the second may have passed the first
			if inTime = time.Since(notified) < driver.NotifyGrace; inTime {
				require.Equal(t, driver.Busy, g.State)
				require.Equal(t, "b", g.Holder, "it is still the first")
				require.Equal(t, driver.Granted, try(t, l, queued("b")).State)
			}
			release("c")
			release("b")
		}
	})
}
