package single_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

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
