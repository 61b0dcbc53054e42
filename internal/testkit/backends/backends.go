// Package backends is the one list of the backends that the suites of this repository run on:
//
//	for _, backend := range backends.All {
//		t.Run(backend.Name, func(t *testing.T) { test(t, backend.Start(t)) })
//	}
//
// A suite that starts its own servers, or that opens a backend in another process, takes the
// backend from On.
package backends

import (
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Names of backends on clients.
const (
	Single    = "single"
	Reentrant = "reentrant"
	Redlock   = "redlock"
)

// OnOneRedis are the backends that use one Redis, in a fixed order.
var OnOneRedis = []string{Single, Reentrant}

// A Backend is one that a whole suite runs on.
type Backend struct {
	Name string
	// Start starts the servers that it needs, which end with the test.
	Start func(t testing.TB) guard.Locker
}

// All are the backends, on each kind of store that they support.
var All = []Backend{
	{"memory", func(testing.TB) guard.Locker { return memory.New() }},
	{"single", func(t testing.TB) guard.Locker { return On(Single, redistest.Start(t).Client(t)) }},
	{"single on miniredis", func(t testing.TB) guard.Locker { return On(Single, miniRedis(t)) }},
	{"single on a cluster", func(t testing.TB) guard.Locker { return On(Single, redistest.StartCluster(t).Client(t)) }},
	{"reentrant", func(t testing.TB) guard.Locker { return On(Reentrant, redistest.Start(t).Client(t)) }},
	{"reentrant on a cluster", func(t testing.TB) guard.Locker {
		return On(Reentrant, redistest.StartCluster(t).Client(t))
	}},
	{"redlock", func(t testing.TB) guard.Locker {
		return On(Redlock, clients(t, 5)...)
	}},
	{"both single and reentrant", func(t testing.TB) guard.Locker {
		rdb := clients(t, 2)
		return both.New(On(Single, rdb[0]), On(Reentrant, rdb[1]))
	}},
	{"redlock of reentrant nodes and memory", func(t testing.TB) guard.Locker {
		nodes := []guard.Locker{memory.New()}
		for _, rdb := range clients(t, 2) {
			nodes = append(nodes, On(Reentrant, rdb))
		}
		return redlock.New(nodes)
	}},
}

// On returns the named backend on the clients. redlock takes several, and its nodes are of single.
// On panics if there is no such backend.
func On(name string, rdb ...redis.UniversalClient) guard.Locker {
	switch {
	case name == Single && len(rdb) == 1:
		return single.New(rdb[0])
	case name == Reentrant && len(rdb) == 1:
		return reentrant.New(rdb[0])
	case name == Redlock:
		var nodes []guard.Locker
		for _, node := range rdb {
			nodes = append(nodes, single.New(node))
		}
		return redlock.New(nodes)
	}
	panic(fmt.Sprintf("backends: no backend %q on %d clients", name, len(rdb)))
}

func clients(t testing.TB, n int) (all []redis.UniversalClient) {
	t.Helper()
	for _, server := range redistest.StartN(t, n) {
		all = append(all, server.Client(t))
	}
	return all
}

// miniRedis is a Redis in this process, whose keys expire in real time.
func miniRedis(t testing.TB) redis.UniversalClient {
	t.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
