package single_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A bomb is a hook that goes off once when it is armed: it panics, or calls instead.
type bomb struct {
	witness
	armed   atomic.Bool
	instead func()
}

func (b *bomb) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.armed.CompareAndSwap(true, false) {
			if b.instead != nil {
				b.instead()
			}
			panic("a bug in a hook")
		}
		b.note(cmd)
		return next(ctx, cmd)
	}
}

// After a panic in a hook, calls neither wait behind the one that panicked nor lose the connection
// that it used.
func TestOwn_aHookThatPanicsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hook := &bomb{}
	l := single.New(client(t, server.Addr()), single.WithClientSetup(func(own *redis.Client) { own.AddHook(hook) }))
	pairs := func(n int) {
		for range n {
			require.NoError(t, take(t.Context(), l, claimOf(1)))
			_, err := l.Release(t.Context(), claimOf(1), driver.After{})
			require.NoError(t, err)
		}
	}
	onOwn := func() bool {
		before := hook.count("evalsha")
		pairs(1)
		return hook.count("evalsha") > before
	}
	require.Eventually(t, onOwn, settled, time.Millisecond)
	hook.armed.Store(true)
	require.Panics(t, func() {
		for {
			pairs(1)
		}
	})
	requireUnhindered(t, l)
	require.Eventually(t, onOwn, settled, time.Millisecond, "the connection is free again")
}

// In the goroutine of a batch there is no caller whom a panic could reach. Each call of the batch
// ends as if it had sent alone, and the others go on.
func TestOwn_aHookThatDoesNotReturnFromABatchEndsItsCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, exit := range map[string]func(){"panic": nil, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			hook := &bomb{instead: exit}
			l := single.New(client(t, server.Addr()), single.WithClientSetup(func(own *redis.Client) { own.AddHook(hook) }))
			var ended atomic.Int64
			for range 5 { // once in a batch, as a rule
				var all sync.WaitGroup
				for i := range 64 {
					all.Go(func() {
						returned := false
						defer func() {
							if recover() != nil || !returned {
								ended.Add(1)
							}
						}()
						for n := range 20 {
							if i == 0 && n == 10 {
								hook.armed.Store(true)
							}
							if take(t.Context(), l, claimOf(i)) != nil {
								ended.Add(1)
							}
							if _, err := l.Release(t.Context(), claimOf(i), driver.After{}); err != nil {
								ended.Add(1)
							}
						}
						returned = true
					})
				}
				all.Wait()
			}
			require.Positive(t, ended.Load())
			requireUnhindered(t, l)
		})
	}
}

// requireUnhindered makes calls, each of which would wait for 50 ms behind a batch that never ends.
func requireUnhindered(t *testing.T, l *single.Locker) {
	t.Helper()
	fastest := time.Hour
	for range 40 {
		start := time.Now()
		require.NoError(t, take(t.Context(), l, claimOf(1)))
		_, err := l.Release(t.Context(), claimOf(1), driver.After{})
		require.NoError(t, err)
		fastest = min(fastest, time.Since(start))
	}
	require.Less(t, fastest, 50*time.Millisecond)
}

// Nothing waits in the goroutines in which these hooks run: a panic there would end the process.
func TestWarnings_areNoneIfAHookPanics(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	hook := &bomb{}
	rdb.AddHook(hook)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hook.armed.Store(true)
	require.Empty(t, single.New(rdb).Warnings(ctx))
	hook.armed.Store(true)
	_, err := single.New(rdb).Describe().ServerID(ctx)
	require.ErrorContains(t, err, "a bug in a hook")
}

func TestSubscribe_connectsAgainIfAHookPanics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var bad atomic.Bool
	var panics atomic.Int64
	rdb := server.Client(t, func(o *redis.Options) {
		o.OnConnect = func(context.Context, *redis.Conn) error {
			if bad.Load() {
				panics.Add(1)
				panic("a bug in OnConnect")
			}
			return nil
		}
	})
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	bad.Store(true)
	var wakes atomic.Int64
	stop := l.Subscribe("k", "", func(time.Duration) { wakes.Add(1) })
	defer stop()
	require.Eventually(t, func() bool { return panics.Load() > 1 }, settled, time.Millisecond)
	bad.Store(false)
	require.Eventually(t, func() bool { return wakes.Load() > 0 }, settled, time.Millisecond, "it is confirmed")

	bad.Store(true)
	before := panics.Load()
	killed, err := server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, killed)
	require.Eventually(t, func() bool { return panics.Load() > before }, settled, time.Millisecond)
	bad.Store(false)
	require.Eventually(t, func() bool { return wakes.Load() > 1 }, settled, time.Millisecond, "it is confirmed")
}
