// Package bench does the same work with Onerun and with its peers, in one run and on the same servers.
package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

const ttl = 8 * time.Second // redsync's default

// A pair acquires the key and releases it.
type pair func(ctx context.Context, key string) error

// guarded returns the pair of a Guard over the Locker.
func guarded(b *testing.B, locker guard.Locker) pair {
	b.Helper()
	g, err := guard.New(locker, guard.WithTTL(ttl))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, g.Close(context.Background())) })
	return func(ctx context.Context, key string) error {
		lease, err := g.Acquire(ctx, key)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

// quorum returns the pair of each implementation over the servers.
func quorum(b *testing.B, impl string, clients []*redis.Client) pair {
	if impl == "onerun" {
		var nodes []guard.Locker
		for _, c := range clients {
			nodes = append(nodes, single.New(c))
		}
		return guarded(b, redlock.New(nodes))
	}
	var pools []redsyncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, key string) error {
		m := rs.NewMutex(key, redsync.WithTries(1))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}
}

// run does b.N pairs by so many callers, each with a key of its own.
func run(b *testing.B, callers int, do pair) {
	b.Helper()
	key := keys()
	for c := range callers { // warm: connections and scripts
		require.NoError(b, do(b.Context(), key(c)))
	}
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := do(b.Context(), key(c)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
}

// runs numbers the runs, as each has keys of its own: the one before closed its clients while releases were still on their
// way to the slower servers.
var runs atomic.Int64

func keys() func(n int) string {
	run := runs.Add(1)
	return func(n int) string { return fmt.Sprintf("bench:%d:%d", run, n) }
}

func BenchmarkRedLock(b *testing.B) {
	servers := redistest.StartN(b, 5)
	for _, callers := range []int{1, 64} {
		for _, impl := range []string{"onerun", "redsync"} {
			b.Run(fmt.Sprintf("impl=%s/g=%d", impl, callers), func(b *testing.B) {
				run(b, callers, quorum(b, impl, connect(b, servers)))
			})
		}
	}
}

// BenchmarkRedLockFrozen has one caller, and some of the five servers stopped.
func BenchmarkRedLockFrozen(b *testing.B) {
	servers := redistest.StartN(b, 5)
	for _, frozen := range []int{0, 1, 2} {
		for _, impl := range []string{"onerun", "redsync"} {
			b.Run(fmt.Sprintf("impl=%s/frozen=%d", impl, frozen), func(b *testing.B) {
				do := quorum(b, impl, connect(b, servers))
				key := keys()
				require.NoError(b, do(b.Context(), key(-1)))
				for _, s := range servers[:frozen] {
					s.Freeze()
					defer s.Thaw()
				}
				b.ResetTimer()
				for i := range b.N {
					if err := do(b.Context(), key(i)); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
			})
		}
	}
}

// BenchmarkReentrant is one caller's pair on one server, beside single's.
func BenchmarkReentrant(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	for _, l := range []struct {
		name   string
		locker guard.Locker
	}{{"single", single.New(rdb)}, {"reentrant", reentrant.New(rdb)}} {
		b.Run("backend="+l.name, func(b *testing.B) { run(b, 1, guarded(b, l.locker)) })
	}
}

func connect(b *testing.B, servers []*redistest.Server) (clients []*redis.Client) {
	for _, s := range servers {
		clients = append(clients, s.Client(b))
	}
	return clients
}
