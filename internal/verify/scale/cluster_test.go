package scale_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// TestCluster_claimsPerSecond has callers take and release leases, each on keys of its own.
func TestCluster_claimsPerSecond(t *testing.T) {
	masters, callers, span := []int{0}, []int{16}, 300*time.Millisecond
	if full() {
		masters, callers, span = []int{0, 1, 3, 6}, []int{64, 512}, 5*time.Second
	}
	var table strings.Builder
	fmt.Fprintln(&table, "| servers | callers | pairs/s | the process's CPU | all servers' CPU | the busiest server | µs of a server for a pair |\n|---|---|---|---|---|---|---|")
	for _, n := range masters {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			name := fmt.Sprintf("Cluster of %d", n)
			var servers []*redistest.Server
			var rdb redis.UniversalClient
			if n == 0 {
				name, servers = "standalone", redistest.StartN(t, 1)
				rdb = servers[0].Client(t)
			} else {
				cluster := redistest.StartClusterN(t, n)
				servers, rdb = cluster.Nodes, cluster.Client(t)
			}
			for _, c := range callers {
				pairs, used := claims(t, rdb, servers, c, span)
				fmt.Fprintf(&table, "| %s | %d | %s | %.0f %% | %.0f %% | %.0f %% | %.1f |\n", name, c, thousands(int(pairs/used.span.Seconds())),
					used.share(used.own), used.share(used.servers), used.share(used.busiest), used.servers.Seconds()/pairs*1e6)
			}
		})
	}
	show(t, "cluster", table.String())
}

func claims(
	t *testing.T, rdb redis.UniversalClient, servers []*redistest.Server, callers int, span time.Duration,
) (pairs float64, used spending) {
	t.Helper()
	g, err := guard.New(single.New(rdb), guard.WithTTL(10*time.Second))
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	var runs atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// a call without a context that ends, as most are
				err := g.Do(context.Background(), fmt.Sprint("k", i, ":", n%16), func(context.Context) error { return nil })
				if err != nil {
					t.Error(err)
					return
				}
				runs.Add(1)
			}
		})
	}
	time.Sleep(span / 5) // until connections are there
	m := startMeter(t, servers...)
	before := runs.Load()
	time.Sleep(span) // in which runs are counted
	used, pairs = m.since(), float64(runs.Load()-before)
	end()
	all.Wait()
	require.NoError(t, g.Close(context.Background()))
	require.Positive(t, pairs)
	return pairs, used
}
