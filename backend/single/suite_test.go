package single_test

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

func TestSuite_standalone(t *testing.T) {
	server := redistest.Start(t)
	guardtest.Run(t, guardtest.Store{
		New:   func(t testing.TB) guard.Locker { return onEmpty(t, server) },
		Again: func(t testing.TB, _ guard.Locker) guard.Locker { return single.New(server.Client(t)) },
		Flush: func(t testing.TB) { flush(t, server.Client(t)) },
		Freeze: func(testing.TB) func() {
			server.Freeze()
			return server.Thaw
		},
	})
}

func TestSuite_cluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	flushAll := func(t testing.TB) {
		for _, node := range cluster.Nodes {
			flush(t, node.Client(t))
		}
	}
	guardtest.Run(t, guardtest.Store{
		New: func(t testing.TB) guard.Locker {
			flushAll(t)
			return single.New(cluster.Client(t))
		},
		Again: func(t testing.TB, _ guard.Locker) guard.Locker { return single.New(cluster.Client(t)) },
		Flush: flushAll,
	})
}

func TestSuite_sentinel(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	guardtest.Run(t, guardtest.Store{
		New: func(t testing.TB) guard.Locker {
			flush(t, sentinel.Master.Client(t))
			return single.New(sentinel.Client(t))
		},
		Again: func(t testing.TB, _ guard.Locker) guard.Locker { return single.New(sentinel.Client(t)) },
	})
}

func TestSuite_miniredis(t *testing.T) {
	guardtest.Run(t, guardtest.Store{
		New: func(t testing.TB) guard.Locker {
			server := miniredis.NewMiniRedis()
			server.ClockTTL(true)
			require.NoError(t, server.Start())
			t.Cleanup(server.Close)
			return single.New(client(t, server.Addr()))
		},
	})
}

// client returns a client with go-redis' own defaults.
func client(t testing.TB, addr string, configure ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: addr}
	for _, c := range configure {
		c(opts)
	}
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// onEmpty returns a Locker on the server, which it makes forget everything.
func onEmpty(t testing.TB, server *redistest.Server) guard.Locker {
	rdb := server.Client(t)
	flush(t, rdb)
	return single.New(rdb)
}

func flush(t testing.TB, rdb *redis.Client) {
	t.Helper()
	require.NoError(t, rdb.FlushAll(context.Background()).Err())
}
