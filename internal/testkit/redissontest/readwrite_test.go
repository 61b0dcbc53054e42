package redissontest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// requireRefused requires that the lock is not granted to thread 1, and returns the time that the
// holder has left.
func requireRefused(t *testing.T, lock *redissontest.Lock) time.Duration {
	t.Helper()
	left, ok, err := lock.TryLock(t.Context(), 1, lease)
	require.NoError(t, err)
	require.False(t, ok)
	return left
}

func TestReadLock_leavesInRedisWhatRedissonLeaves(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	read, otherRead := java.ReadLock("k"), other.ReadLock("k")
	require.Equal(t, "redisson_rwlock:{k}", read.Channel())
	require.Equal(t, java.ID()+":1", read.Field(1))
	require.Equal(t, "{k}:"+java.ID()+":1:rwlock_timeout:2", read.TimeoutKey(1, 2))
	require.Equal(t, "a:{k}:"+java.ID()+":1:rwlock_timeout:1", java.ReadLock("a:{k}").TimeoutKey(1, 1))

	take(t, read, 0)
	take(t, read, 10*time.Second)
	require.Equal(t, map[string]string{"mode": "read", read.Field(1): "2"}, rdb.HGetAll(ctx, "k").Val())
	require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "k").Val(), float64(soon), "the longest")
	require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, read.TimeoutKey(1, 1)).Val(), float64(soon))
	require.InDelta(t, 10*time.Second, rdb.PTTL(ctx, read.TimeoutKey(1, 2)).Val(), float64(soon))
	take(t, otherRead, time.Minute)
	require.InDelta(t, time.Minute, rdb.PTTL(ctx, "k").Val(), float64(soon))
	require.Positive(t, requireRefused(t, java.WriteLock("k")), "even to a thread that reads")

	for _, renew := range []func() (bool, error){
		func() (bool, error) { return read.Renew(ctx, 1) }, func() (bool, error) { return read.RenewAll(ctx, 1) },
	} {
		require.NoError(t, rdb.PExpire(ctx, otherRead.TimeoutKey(1, 1), time.Minute).Err())
		held, err := renew()
		require.NoError(t, err)
		require.True(t, held)
		require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "k").Val(), float64(soon), "it is cut")
		require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, read.TimeoutKey(1, 2)).Val(), float64(soon))
	}
	require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, otherRead.TimeoutKey(1, 1)).Val(), float64(soon), "by RenewAll")
	held, err := read.Renew(ctx, 2)
	require.NoError(t, err)
	require.False(t, held)

	require.NoError(t, rdb.PExpire(ctx, otherRead.TimeoutKey(1, 1), 10*time.Second).Err())
	for range 2 {
		released, err := read.Unlock(ctx, 1)
		require.NoError(t, err)
		require.False(t, released)
	}
	require.Equal(t, map[string]string{"mode": "read", otherRead.Field(1): "1"}, rdb.HGetAll(ctx, "k").Val())
	require.InDelta(t, 10*time.Second, rdb.PTTL(ctx, "k").Val(), float64(soon), "what the others need")
	_, err = read.Unlock(ctx, 1)
	require.ErrorIs(t, err, redissontest.ErrNotOwner)

	giveBack(t, otherRead, 1)
	require.Zero(t, rdb.DBSize(ctx).Val())
}

func TestReadLock_deletesReadersWithoutATimeoutKeyWithTheLast(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	read := redissontest.New(rdb).ReadLock("k")
	take(t, read, lease)
	require.NoError(t, rdb.HSet(ctx, "k", "text", "not a number", "number", "1").Err())
	giveBack(t, read, 1)
	require.Zero(t, rdb.DBSize(ctx).Val())
}

func TestWriteLock_leavesInRedisWhatRedissonLeaves(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	read, write := java.ReadLock("k"), java.WriteLock("k")
	require.Equal(t, java.ID()+":1:write", write.Field(1))
	listener := rdb.Subscribe(ctx, "redisson_rwlock:{k}")
	defer func() { _ = listener.Close() }()
	_, err := listener.Receive(ctx)
	require.NoError(t, err)

	take(t, write, 20*time.Second)
	take(t, write, 20*time.Second)
	require.Equal(t, map[string]string{"mode": "write", write.Field(1): "2"}, rdb.HGetAll(ctx, "k").Val())
	require.InDelta(t, 40*time.Second, rdb.PTTL(ctx, "k").Val(), float64(soon), "the sum")
	require.Positive(t, requireRefused(t, other.ReadLock("k")))
	require.Positive(t, requireRefused(t, other.WriteLock("k")))
	take(t, read, lease) // the writer may read
	held, err := write.Renew(ctx, 1)
	require.NoError(t, err)
	require.True(t, held)
	released, err := write.Unlock(ctx, 1)
	require.NoError(t, err)
	require.False(t, released)
	giveBack(t, write, 1)
	require.Equal(t, map[string]string{"mode": "read", read.Field(1): "1"}, rdb.HGetAll(ctx, "k").Val())
	take(t, other.ReadLock("k"), lease)
	_, err = write.Unlock(ctx, 1)
	require.ErrorIs(t, err, redissontest.ErrNotOwner)
	_, err = read.Unlock(ctx, 1)
	require.NoError(t, err)
	giveBack(t, other.ReadLock("k"), 1)
	take(t, write, lease)
	giveBack(t, write, 1)
	for _, payload := range []string{"0", "1"} { // and nothing when the reader stayed
		message, err := listener.ReceiveTimeout(ctx, soon)
		require.NoError(t, err)
		require.Equal(t, &redis.Message{Channel: write.Channel(), Payload: payload}, message)
	}

	take(t, write, lease)
	for want, lock := range map[bool]*redissontest.Lock{false: read, true: write} {
		forced, err := lock.ForceUnlock(ctx)
		require.NoError(t, err)
		require.Equal(t, want, forced)
		if want {
			require.Zero(t, rdb.Exists(ctx, "k").Val())
		}
	}
}

func TestReadWriteLock_ignoresALockWithoutAMode(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.Lock("k"), lease)
	take(t, other.WriteLock("k"), lease)
	take(t, java.Lock("l"), lease)
	take(t, other.ReadLock("l"), lease)
}

func TestReadWriteLock_wakesWaiters(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	java, other := redissontest.New(rdb), redissontest.New(rdb)
	take(t, java.WriteLock("k"), lease)
	first, second := waiter(t, other.ReadLock("k"), 1), waiter(t, other.ReadLock("k"), 2)
	giveBack(t, java.WriteLock("k"), 1)
	requireWoken(t, first)
	requireWoken(t, second)
	writer := waiter(t, java.WriteLock("k"), 1)
	released, err := other.ReadLock("k").Unlock(t.Context(), 1)
	require.NoError(t, err)
	require.False(t, released)
	require.Empty(t, writer)
	giveBack(t, other.ReadLock("k"), 2)
	requireWoken(t, writer)
	require.NoError(t, java.Malformed())
	require.NoError(t, other.Malformed())
}
