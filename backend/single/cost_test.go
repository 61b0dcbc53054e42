package single_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

func TestDo_costsTwoRoundTrips(t *testing.T) {
	server := redistest.Start(t)
	g := newGuard(t, server.Client(t))
	require.NoError(t, g.Do(t.Context(), "k", nothing)) // the server learns the scripts
	server.ResetStats(t)
	const runs = 100
	for range runs {
		require.NoError(t, g.Do(t.Context(), "k", nothing))
	}
	calls := server.Calls(t)
	require.EqualValues(t, 2*runs, calls["evalsha"], "one to take and one to give back: %v", calls)
	require.Zero(t, calls["eval"])
}

func TestAcquire_tenThousandHeldLeasesShareOneGoroutineAndFewPipelines(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	const ttl = 6 * time.Second
	g := newGuard(t, rdb, guard.WithTTL(ttl))
	first, err := g.Acquire(t.Context(), "first")
	require.NoError(t, err)
	before := runtime.NumGoroutine()

	leases := []*guard.Lease{first}
	for i := range 10_000 {
		lease, err := g.Acquire(t.Context(), fmt.Sprint("k", i))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+20, "but for a renewal that happens to be under way")

	server.ResetStats(t)
	packets := rdb.PoolStats().Hits
	require.Eventually(t, func() bool {
		return server.Calls(t)["evalsha"] >= int64(2*len(leases))
	}, 3*ttl, ttl/10)
	packets = rdb.PoolStats().Hits - packets
	require.Less(t, packets, uint32(2*len(leases)/10), "renewals travel together")
	for _, lease := range leases {
		require.True(t, lease.Valid())
	}

	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, g.Close(now), "took back 10001 leases")
}
