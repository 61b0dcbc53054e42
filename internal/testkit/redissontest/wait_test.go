package redissontest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestLock_wakesAWaiterOfAnotherClient(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	java, other := redissontest.New(server.Client(t)), redissontest.New(server.Client(t))
	take(t, java.Lock("job"), lease)
	done := waiter(t, other.Lock("job"), 1)
	requireSubscribers(t, server, 1)
	giveBack(t, java.Lock("job"), 1)
	requireWoken(t, done)
	requireSubscribers(t, server, 0)
	require.Equal(t, []redissontest.Message{{Channel: "redisson_lock__channel:{job}", Payload: "0"}}, other.Messages())
	require.NoError(t, other.Malformed())
	require.Zero(t, other.Lock("job").Waiting())
	held, err := other.Lock("job").IsHeldBy(ctx, 1)
	require.NoError(t, err)
	require.True(t, held)
	calls := server.Calls(t)
	require.Equal(t, int64(1), calls["subscribe"])
	require.Equal(t, int64(1), calls["unsubscribe"])
	require.Zero(t, calls["ssubscribe"]+calls["spublish"])
}

func TestLock_wakesAWaiterOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for name, test := range map[string]struct {
		mode                            redissontest.ShardedSubscription
		publish, subscribe, unsubscribe string
	}{
		"sharded": {redissontest.Auto, "spublish", "ssubscribe", "sunsubscribe"},
		"on":      {redissontest.On, "spublish", "ssubscribe", "sunsubscribe"},
		"off":     {redissontest.Off, "publish", "subscribe", "unsubscribe"},
	} {
		t.Run(name, func(t *testing.T) {
			mode := redissontest.WithShardedSubscription(test.mode)
			java, other := redissontest.New(cluster.Client(t), mode), redissontest.New(cluster.Client(t), mode)
			require.Equal(t, test.mode != redissontest.Off, java.Sharded())
			for _, node := range cluster.Nodes {
				for _, key := range []string{cluster.KeyOn(t, node), "{" + cluster.KeyOn(t, node) + "}:job"} {
					for _, node := range cluster.Nodes {
						node.ResetStats(t)
					}
					take(t, java.Lock(key), lease)
					done := waiter(t, other.Lock(key), 1)
					giveBack(t, java.Lock(key), 1)
					requireWoken(t, done)
					giveBack(t, other.Lock(key), 1)
					// nobody waits for the answer to this
					require.Eventually(t, func() bool { return node.Calls(t)[test.unsubscribe] == 1 }, soon, step)
					calls := node.Calls(t)
					require.Equal(t, int64(2), calls[test.publish], calls)
					require.Equal(t, int64(1), calls[test.subscribe], calls)
				}
			}
			require.NoError(t, other.Malformed())
		})
	}
	t.Run("a name with half a hash tag cannot be unlocked", func(t *testing.T) {
		for _, name := range []string{"a{b", "a}b", "a{}b"} {
			lock := redissontest.New(cluster.Client(t)).Lock(name)
			take(t, lock, lease)
			_, err := lock.Unlock(t.Context(), 1)
			require.ErrorContains(t, err, "CROSSSLOT", name)
		}
	})
}

func TestForceUnlock_wakesAWaiter(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("job"), lease)
	done := waiter(t, other.Lock("job"), 1)
	forced, err := redissontest.New(rdb).Lock("job").ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, forced)
	requireWoken(t, done)
}

func TestLock_triesAgainWhenTheHoldersTimeIsOver(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("job"), 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	wait, err := other.Lock("job").Lock(ctx, 1, lease)
	require.NoError(t, err)
	require.Zero(t, wait.ByMessage)
	require.Positive(t, wait.ByTTL)
	require.Equal(t, 2+wait.ByTTL, wait.Tries)
}

func TestLock_isTakenAtOnceWithoutASubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	wait, err := redissontest.New(server.Client(t)).Lock("job").Lock(t.Context(), 1, lease)
	require.NoError(t, err)
	require.Equal(t, redissontest.Wait{Tries: 1}, wait)
	require.Zero(t, server.Calls(t)["subscribe"])
}

func TestLock_endsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("job"), lease)
	require.NoError(t, rdb.Persist(t.Context(), "job").Err(), "Redisson then waits without an end")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := other.Lock("job").Lock(ctx, 1, lease)
		done <- err
	}()
	require.Eventually(t, func() bool { return other.Lock("job").Waiting() == 1 }, soon, step)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	requireSubscribers(t, server, 0)
}

func TestLock_wakesOneWaiterOfAClientByZeroAndAllByOne(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	rdb := server.Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("job"), lease)
	first, second := waiter(t, other.Lock("job"), 1), waiter(t, other.Lock("job"), 2)
	requireSubscribers(t, server, 1)
	server.ResetStats(t)
	tries := func(n int64) func() bool {
		return func() bool { return server.Calls(t)["evalsha"] == n && other.Lock("job").Waiting() == 2 }
	}
	channel := other.Lock("job").Channel()
	require.NoError(t, rdb.Publish(ctx, channel, "0").Err())
	require.Eventually(t, tries(1), soon, step)
	require.NoError(t, rdb.Publish(ctx, channel, "1").Err())
	require.Eventually(t, tries(1+2), soon, step)
	require.NoError(t, rdb.Publish(ctx, channel, "2").Err())
	time.Sleep(50 * time.Millisecond) // a third waiter that wakes would have tried by now
	require.True(t, tries(1+2)(), "another payload wakes nobody")

	giveBack(t, java.Lock("job"), 1)
	var won int64
	select {
	case got := <-first:
		require.NoError(t, got.err)
		won, first = 1, second
	case got := <-second:
		require.NoError(t, got.err)
		won = 2
	}
	giveBack(t, other.Lock("job"), won)
	require.NoError(t, (<-first).err)
	require.NoError(t, other.Malformed())
}

func TestMalformed_tellsWhatRedissonCouldNotDecode(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("job"), lease)
	done := waiter(t, other.Lock("job"), 1)
	for _, payload := range []string{`"0"`, "", " 0", "0x0", "-7"} {
		require.NoError(t, rdb.Publish(ctx, other.Lock("job").Channel(), payload).Err())
	}
	giveBack(t, java.Lock("job"), 1)
	requireWoken(t, done) // once
	require.Len(t, other.Messages(), 6)
	err := other.Malformed()
	require.ErrorContains(t, err, `redissontest: message on redisson_lock__channel:{job}: strconv.ParseInt: parsing`)
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 4)
}

func TestLock_subscribesAgainWhenTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	rdb := server.Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("job"), lease)
	done := waiter(t, other.Lock("job"), 1)
	require.NoError(t, rdb.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	require.Eventually(t, func() bool { return server.Calls(t)["subscribe"] == 2 }, soon, step)
	giveBack(t, java.Lock("job"), 1)
	requireWoken(t, done)
}

// requireSubscribers waits until so many connections listen for the release of "job".
func requireSubscribers(t *testing.T, server *redistest.Server, want int64) {
	t.Helper()
	const channel = "redisson_lock__channel:{job}"
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	require.Eventually(t, func() bool { return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == want }, soon, step)
}
