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
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Without the option, the suite runs in package backend.
func TestLong_suiteWithReadWrite(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := redistest.Start(t)
	backend := readWriteSuite(func(t testing.TB) redis.UniversalClient { return server.Client(t) }, server)
	backend.Freeze = func(testing.TB) func() {
		server.Freeze()
		return server.Thaw
	}
	guardtest.Run(t, backend)
}

func TestWeekly_suiteWithReadWriteOnACluster(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t)
	guardtest.Run(t, readWriteSuite(func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }, cluster.Nodes...))
}

func readWriteSuite(connect func(testing.TB) redis.UniversalClient, nodes ...*redistest.Server) guardtest.Backend {
	open := func(t testing.TB) guard.Locker { return reentrant.New(connect(t), reentrant.WithReadWrite()) }
	flush := func(t testing.TB) {
		for _, node := range nodes {
			require.NoError(t, node.Client(t).FlushAll(t.Context()).Err())
		}
	}
	return guardtest.Backend{
		New:    func(t testing.TB) guard.Locker { flush(t); return open(t) },
		Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return open(t) },
		Flush:  flush,
		Owners: true, Ledger: true, Inspects: true, Notifies: true, Queues: true,
		Shares: []int{driver.Unlimited}, MaxSharedTTL: 30 * time.Second,
		Keys: []string{"k:{tag}", "{tag}k", "onerun:3:fence", "onerun:k:lease"},
	}
}
