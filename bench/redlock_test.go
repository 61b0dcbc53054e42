// Package bench does the same work with Onerun and with its peers, in one run and on the same
// servers.
package bench

import (
	"fmt"
	"testing"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// quorum is each implementation over the servers. Beside ours only redsync is one: rueidislock
// takes the majority of several keys on one Redis or Cluster, which outlives the loss of a shard,
// but not of the Redis, and redislock has none.
func quorum(b *testing.B, impl string, clients []*redis.Client) locker {
	b.Helper()
	if impl == "onerun" {
		var nodes []guard.Locker
		for _, c := range clients {
			nodes = append(nodes, single.New(c))
		}
		return onStore(b, redlock.New(nodes))
	}
	var pools []redsyncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	return syncing{rs: redsync.New(pools...), opts: []redsync.Option{redsync.WithTries(1)}}
}

// onStore is a Guard over a store on clients of the benchmark's.
func onStore(b *testing.B, store guard.Locker) locker {
	b.Helper()
	l, err := newGuarded(nil, store, ttl)
	require.NoError(b, err)
	b.Cleanup(l.close)
	return l
}

func BenchmarkRedLock(b *testing.B) {
	servers := redistest.StartN(b, 5)
	for _, g := range callers {
		for _, i := range impls {
			if i.name != "onerun" && i.name != "redsync" {
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/g=%d", i.name, g), func(b *testing.B) {
				run(b, g, quorum(b, i.name, connect(b, servers)), i.sends, servers...)
			})
		}
		b.Run(fmt.Sprintf("impl=fenced-floor/g=%d", g), func(b *testing.B) {
			run(b, g, openQuorumFloor(b, connect(b, servers)), nil, servers...)
		})
	}
}

// BenchmarkRedLockFrozen has one caller, and some of the five servers stopped.
func BenchmarkRedLockFrozen(b *testing.B) {
	servers := redistest.StartN(b, 5)
	for _, frozen := range []int{0, 1, 2} {
		for _, impl := range []string{"onerun", "redsync"} {
			b.Run(fmt.Sprintf("impl=%s/frozen=%d", impl, frozen), func(b *testing.B) {
				l := quorum(b, impl, connect(b, servers))
				key := keys()
				require.NoError(b, pair(b.Context(), l, key(-1), nothing))
				for _, s := range servers[:frozen] {
					s.Freeze()
					defer s.Thaw()
				}
				b.ResetTimer()
				for i := range b.N {
					if err := pair(b.Context(), l, key(i), nothing); err != nil {
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
	server := redistest.Start(b)
	rdb := server.Client(b)
	for _, l := range []struct {
		name   string
		locker guard.Locker
	}{{"single", single.New(rdb)}, {"reentrant", reentrant.New(rdb)}} {
		b.Run("backend="+l.name, func(b *testing.B) { run(b, 1, onStore(b, l.locker), nil, server) })
	}
}

func connect(b *testing.B, servers []*redistest.Server) (clients []*redis.Client) {
	for _, s := range servers {
		clients = append(clients, s.Client(b))
	}
	return clients
}
