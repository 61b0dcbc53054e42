package system_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A stage is the servers of a backend on which several processes meet.
type stage struct {
	backend string // single, reentrant, cluster (of single) or redlock
	servers []*redistest.Server
}

func newStage(t *testing.T, backend string) stage {
	t.Helper()
	switch backend {
	case "cluster":
		return stage{backend, redistest.StartCluster(t).Nodes}
	case "redlock":
		return stage{backend, redistest.StartN(t, 5)}
	}
	return stage{backend, redistest.StartN(t, 1)}
}

// String is what another process opens the backend by.
func (s stage) String() string {
	var addrs []string
	for _, server := range s.servers {
		addrs = append(addrs, server.Addr())
	}
	return s.backend + "@" + strings.Join(addrs, ",")
}

// open returns the backend on a stage that is named so, and what closes its clients.
func open(on string) (l guard.Locker, end func()) {
	backend, list, _ := strings.Cut(on, "@")
	addrs := strings.Split(list, ",")
	if backend == "cluster" {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		return backends.On(backends.Single, rdb), func() { _ = rdb.Close() }
	}
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return backends.On(backend, clients...), func() {
		for _, rdb := range clients {
			_ = rdb.Close()
		}
	}
}

// guard returns a Guard on the stage, which ends with the test.
func (s stage) guard(t testing.TB, opts ...guard.Option) *guard.Guard {
	t.Helper()
	l, end := open(s.String())
	t.Cleanup(end)
	g, err := guard.New(l, opts...)
	require.NoError(t, err)
	return g
}

// calls returns how many commands the servers were sent, and those inside of scripts, since
// resetStats.
func (s stage) calls(t testing.TB) (n int64) {
	t.Helper()
	for _, server := range s.servers {
		for _, calls := range server.Calls(t) {
			n += calls
		}
	}
	return n
}

func (s stage) resetStats(t testing.TB) {
	t.Helper()
	for _, server := range s.servers {
		server.ResetStats(t)
	}
}

func nothing(context.Context) error { return nil }
