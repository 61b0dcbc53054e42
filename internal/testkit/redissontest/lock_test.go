package redissontest_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestLock_leavesInRedisWhatRedissonLeaves(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	rdb := server.Client(t)
	listener := rdb.Subscribe(ctx, "redisson_lock__channel:{myLock}")
	defer listener.Close()
	_, err := listener.Receive(ctx)
	require.NoError(t, err)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	require.False(t, java.Sharded())
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, java.ID())
	require.NotEqual(t, java.ID(), other.ID())
	lock := java.Lock("myLock")
	require.Equal(t, "redisson_lock__channel:{myLock}", lock.Channel())
	require.Equal(t, java.ID()+":1", lock.Field(1))

	take(t, lock, 0)
	require.Equal(t, map[string]string{lock.Field(1): "1"}, rdb.HGetAll(ctx, "myLock").Val())
	require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "myLock").Val(), float64(soon))

	left, ok, err := other.Lock("myLock").TryLock(ctx, 1, lease)
	require.NoError(t, err)
	require.False(t, ok)
	require.InDelta(t, 30*time.Second, left, float64(soon))

	take(t, lock, 0)
	require.Equal(t, map[string]string{lock.Field(1): "2"}, rdb.HGetAll(ctx, "myLock").Val())

	latch := lock.NewLatch()
	require.Regexp(t, `^redisson_unlock_latch:\{myLock\}:[0-9a-f]{32}$`, latch)
	for range 2 { // the second time it is the same request, come again
		released, err := lock.UnlockBy(ctx, 1, latch)
		require.NoError(t, err)
		require.False(t, released)
		require.Equal(t, map[string]string{lock.Field(1): "1"}, rdb.HGetAll(ctx, "myLock").Val())
		require.Equal(t, "0", rdb.Get(ctx, latch).Val())
		require.InDelta(t, 18*time.Second, rdb.PTTL(ctx, latch).Val(), float64(4*time.Second))
	}
	require.NoError(t, rdb.Del(ctx, latch).Err())

	giveBack(t, lock, 1)
	require.Zero(t, rdb.DBSize(ctx).Val(), "neither lock nor latch")
	message, err := listener.ReceiveTimeout(ctx, soon)
	require.NoError(t, err)
	require.Equal(t, &redis.Message{Channel: lock.Channel(), Payload: "0"}, message)

	released, err := lock.Unlock(ctx, 1)
	require.False(t, released)
	require.ErrorIs(t, err, redissontest.ErrNotOwner)
	require.EqualError(t, err, `redissontest: unlock "myLock": `+lock.Field(1)+`: not the owner`)
	require.Zero(t, rdb.DBSize(ctx).Val())
}

func TestLock_sendsRedissonsCommands(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	lock := redissontest.New(server.Client(t)).Lock("job")
	use := func() {
		take(t, lock, lease)
		take(t, lock, lease)
		held, err := lock.Renew(ctx, 1)
		require.NoError(t, err)
		require.True(t, held)
		released, err := lock.Unlock(ctx, 1)
		require.NoError(t, err)
		require.False(t, released)
		giveBack(t, lock, 1)
		take(t, lock, lease)
		forced, err := lock.ForceUnlock(ctx)
		require.NoError(t, err)
		require.True(t, forced)
	}
	use() // loads the scripts
	server.ResetStats(t)
	use()
	require.Equal(t, map[string]int64{
		"evalsha": 7,
		"exists":  3, "hincrby": 3 + 2, "pexpire": 3 + 1 + 1, "hexists": 1 + 1 + 2,
		"get": 2, "set": 2, "del": 1 + 2 + 1, "publish": 1 + 1,
	}, server.Calls(t))
}

func TestTryLock_isSentOnceEvenIfTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	lock := redissontest.New(proxy.Client(t)).Lock("job")
	take(t, lock, lease)
	proxy.DropReplyTo("evalsha", 1)
	_, ok, err := lock.TryLock(t.Context(), 1, lease)
	require.Error(t, err)
	require.False(t, ok)
	count, err := lock.HoldCount(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, int64(2), count)
}

func TestLock_tellsWhoHoldsIt(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	lock := java.Lock("job")
	requireState := func(locked, mine bool, count int64, left time.Duration) {
		t.Helper()
		isLocked, err := lock.IsLocked(ctx)
		require.NoError(t, err)
		require.Equal(t, locked, isLocked)
		held, err := lock.IsHeldBy(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, mine, held)
		n, err := lock.HoldCount(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, count, n)
		remain, err := lock.RemainTimeToLive(ctx)
		require.NoError(t, err)
		if left < 0 {
			require.Equal(t, left, remain)
		}
		require.InDelta(t, left, remain, float64(soon))
		renewed, err := lock.Renew(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, mine, renewed)
	}
	requireState(false, false, 0, -2)
	take(t, lock, time.Minute)
	take(t, java.Lock("job"), time.Minute)
	requireState(true, true, 2, time.Minute)
	requireState(true, true, 2, 30*time.Second) // as it was renewed
	forced, err := other.Lock("job").ForceUnlock(ctx)
	require.NoError(t, err)
	require.True(t, forced)
	forced, err = other.Lock("job").ForceUnlock(ctx)
	require.NoError(t, err)
	require.False(t, forced)
	take(t, other.Lock("job"), time.Minute)
	requireState(true, false, 0, time.Minute)
	_, err = lock.Unlock(ctx, 1)
	require.ErrorIs(t, err, redissontest.ErrNotOwner)
	_, err = other.Lock("job").Unlock(ctx, 2)
	require.ErrorIs(t, err, redissontest.ErrNotOwner, "another thread of the holder is another owner")

	require.NoError(t, rdb.Persist(ctx, "job").Err())
	left, ok, err := lock.TryLock(ctx, 1, lease)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, time.Duration(-1), left)
}

func TestUnlock_givesWhatIsLeftTheLeaseThatWasTakenLast(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	lock := redissontest.New(rdb).Lock("job")
	requireLeft := func(want time.Duration) {
		t.Helper()
		require.InDelta(t, want, rdb.PTTL(ctx, "job").Val(), float64(soon))
	}
	take(t, lock, time.Minute)
	take(t, lock, 2*time.Minute)
	require.NoError(t, rdb.PExpire(ctx, "job", lease).Err())
	released, err := lock.Unlock(ctx, 1)
	require.NoError(t, err)
	require.False(t, released)
	requireLeft(2 * time.Minute)
	take(t, lock, 0)
	requireLeft(2 * time.Minute)

	released, err = lock.Unlock(ctx, 1)
	require.NoError(t, err)
	require.False(t, released)
	giveBack(t, lock, 1)
	take(t, lock, 0)
	requireLeft(30 * time.Second)

	take(t, lock, time.Minute)
	forced, err := lock.ForceUnlock(ctx)
	require.NoError(t, err)
	require.True(t, forced)
	take(t, lock, 0)
	requireLeft(30 * time.Second)
}

func TestLock_namesItsChannelAndLatchByItsKey(t *testing.T) {
	t.Parallel()
	lock := func(name string) *redissontest.Lock { return redissontest.New(nil).Lock(name) }
	for name, channel := range map[string]string{
		"job": "redisson_lock__channel:{job}",
		// in another slot than the key, which Redisson does not care for
		"a}b":       "redisson_lock__channel:{a}b}",
		"a:{job}:b": "redisson_lock__channel:a:{job}:b",
		"a{b":       "redisson_lock__channel:a{b", // as this one
	} {
		require.Equal(t, channel, lock(name).Channel())
		prefix := regexp.MustCompile("^redisson_lock__channel").ReplaceAllString(channel, "redisson_unlock_latch")
		require.Regexp(t, "^"+regexp.QuoteMeta(prefix)+":[0-9a-f]{32}$", lock(name).NewLatch())
	}
}
