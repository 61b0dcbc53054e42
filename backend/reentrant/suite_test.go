package reentrant_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Without the option, the suite runs in package backend.
func TestSuite_withReadWrite(t *testing.T) {
	t.Parallel()
	readWrite := reentrant.WithReadWrite()
	for name, start := range map[string]func(*testing.T) (connect func(testing.TB) redis.UniversalClient, nodes []*redistest.Server){
		"standalone": func(t *testing.T) (func(testing.TB) redis.UniversalClient, []*redistest.Server) {
			server := redistest.Start(t)
			return func(t testing.TB) redis.UniversalClient { return server.Client(t) }, []*redistest.Server{server}
		},
		"Cluster": func(t *testing.T) (func(testing.TB) redis.UniversalClient, []*redistest.Server) {
			cluster := redistest.StartCluster(t)
			return func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }, cluster.Nodes
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect, nodes := start(t)
			flush := func(t testing.TB) {
				for _, node := range nodes {
					require.NoError(t, node.Client(t).FlushAll(t.Context()).Err())
				}
			}
			backend := guardtest.Backend{
				New:    func(t testing.TB) guard.Locker { flush(t); return reentrant.New(connect(t), readWrite) },
				Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return reentrant.New(connect(t), readWrite) },
				Flush:  flush,
				Owners: true, Ledger: true, Inspects: true, Notifies: true, Queues: true,
				Shares: []int{driver.Any}, MaxSharedTTL: 30 * time.Second,
				Keys: []string{"k:{tag}", "{tag}k", "onerun:3:fence", "onerun:k:lease"},
			}
			if len(nodes) == 1 {
				backend.Freeze = func(testing.TB) func() {
					nodes[0].Freeze()
					return nodes[0].Thaw
				}
			}
			guardtest.Run(t, backend)
		})
	}
}
