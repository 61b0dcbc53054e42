package reentrant_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Several keys and Redisson's RMultiLock over the same names exclude each other.
func TestDoAll_excludesRMultiLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, err := guard.New(reentrant.New(server.Client(t)))
	require.NoError(t, err)
	java := redissontest.New(server.Client(t))
	ctx := t.Context()

	require.NoError(t, g.DoAll(ctx, []string{"b", "a"}, func(context.Context) error {
		for _, names := range [][]string{{"a", "b"}, {"b", "a"}, {"c", "a"}, {"b", "c"}} {
			ok, err := java.MultiLock(names...).TryLock(ctx, 1)
			require.NoError(t, err)
			require.False(t, ok, "%v", names)
		}
		return nil
	}))

	multi := java.MultiLock("a", "b")
	ok, err := multi.TryLock(ctx, 1)
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, g.DoAll(ctx, []string{"0", "b", "c"}, nothing), guard.ErrBusy)
	require.NoError(t, g.Do(ctx, "0", nothing), "nothing is left behind")
	require.NoError(t, g.Do(ctx, "c", nothing), "nothing is left behind")
	time.AfterFunc(100*time.Millisecond, func() { _ = multi.Unlock(ctx, 1) })
	require.NoError(t, g.DoAll(ctx, []string{"c", "b", "a"}, nothing, guard.WithWait(soon)))
	require.NoError(t, g.Close(ctx))
}

// Both take pairs of three keys in any order.
func TestDoAll_andRMultiLockTakeTurns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	keys := []string{"a", "b", "c"}
	holders := map[string]*atomic.Int64{}
	for _, k := range keys {
		holders[k] = new(atomic.Int64)
	}
	pair := func() []string {
		i := rand.IntN(3)
		return []string{keys[i], keys[(i+1+rand.IntN(2))%3]}
	}
	hold := func(pair []string) {
		for _, k := range pair {
			require.EqualValues(t, 1, holders[k].Add(1), k)
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		for _, k := range pair {
			holders[k].Add(-1)
		}
	}
	var ours, theirs atomic.Int64
	end := time.Now().Add(time.Second)
	goesOn := func() bool { // for a second, and until both have had a turn
		return time.Now().Before(end) || (ours.Load() == 0 || theirs.Load() == 0) && time.Now().Before(end.Add(soon))
	}
	var all sync.WaitGroup
	for i := range 3 {
		g, err := guard.New(reentrant.New(server.Client(t)), guard.WithWait(soon))
		require.NoError(t, err)
		java := redissontest.New(server.Client(t))
		all.Go(func() {
			for goesOn() {
				mine := pair()
				require.NoError(t, g.DoAll(t.Context(), mine, func(context.Context) error { hold(mine); return nil }))
				ours.Add(1)
			}
			require.NoError(t, g.Close(t.Context()))
		})
		all.Go(func() {
			for goesOn() {
				mine := pair()
				multi := java.MultiLock(mine...)
				ok, err := multi.TryLock(t.Context(), int64(i))
				require.NoError(t, err)
				if ok {
					hold(mine)
					require.NoError(t, multi.Unlock(t.Context(), int64(i)))
					theirs.Add(1)
				}
				time.Sleep(time.Millisecond) // between two tries
			}
		})
	}
	all.Wait()
	require.Positive(t, ours.Load())
	require.Positive(t, theirs.Load())
}
