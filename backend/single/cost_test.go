package single_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// neverRenewed is a TTL with which no run lasts until a renewal, also on a busy machine: a renewal
// would be one more round trip.
const neverRenewed = time.Hour

func TestDo_costsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := newGuard(t, server.Client(t), guard.WithTTL(neverRenewed))
	require.NoError(t, g.Do(t.Context(), "k", nothing)) // the server learns the scripts
	server.ResetStats(t)
	const runs = 100
	for range runs {
		require.NoError(t, g.Do(t.Context(), "k", nothing))
	}
	calls := server.Calls(t)
	require.EqualValues(t, 2*runs, calls["evalsha"], "one to acquire and one to release: %v", calls)
	require.Zero(t, calls["eval"])
}

// Claims that share keys have scripts of their own. Those that hold a key alone send what they sent
// before there was sharing.
func TestDo_aloneCostsNothingForSharing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	g := newGuard(t, rdb, guard.WithWait(time.Minute), guard.WithTTL(neverRenewed))
	require.NoError(t, g.Do(t.Context(), "k", nothing)) // the server learns the scripts
	// The counter of a new server is ahead of its clock for 131 ms.
	require.NoError(t, rdb.Set(t.Context(), rdb.Keys(t.Context(), "onerun:*:fence").Val()[0], 1<<50, 0).Err())
	server.ResetStats(t)
	const runs = 100
	for range runs {
		require.NoError(t, g.Do(t.Context(), "k", nothing))
	}
	calls := server.Calls(t)
	want := map[string]int64{
		"evalsha": 2 * runs, "time": runs,
		"get": 2 * runs, // the fence counter, and the lease that is released
		"set": 2 * runs, // the lease, and the fence counter
		"del": runs, "publish": runs,
	}
	for name := range calls {
		if want[name] == 0 { // connecting
			require.Contains(t, []string{"hello", "client|setinfo", "client|maint_notifications", "ping", "info"}, name)
			delete(calls, name)
		}
	}
	require.Equal(t, want, calls)
}

// Not parallel: it counts goroutines.
func TestLong_manyHeldLeasesShareOneGoroutineAndFewPipelines(t *testing.T) {
	leftout.IfShort(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	const ttl = 15 * time.Second // a third is left if the machine pauses for another
	g := newGuard(t, rdb, guard.WithTTL(ttl))
	first, err := g.Acquire(t.Context(), "first")
	require.NoError(t, err)
	before := runtime.NumGoroutine()

	leases := []*guard.Lease{first}
	for i := range 2000 {
		lease, err := g.Acquire(t.Context(), fmt.Sprint("k", i))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+20, "but for a renewal that happens to be under way")

	server.ResetStats(t)
	already := reads(t, rdb)
	require.Eventually(t, func() bool {
		return server.Calls(t)["pexpire"] >= int64(len(leases))
	}, 3*ttl, ttl/100)
	took := reads(t, rdb) - already
	t.Logf("%d renewals of %d leases took %d reads", server.Calls(t)["pexpire"], len(leases), took)
	require.Less(t, took, len(leases)/10, "renewals travel together")
	for _, lease := range leases {
		require.True(t, lease.Valid())
	}

	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, g.Close(now), "2001 leases were revoked")
}

// reads returns how often the server has read from a connection: about once for each pipeline.
func reads(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "stats").Result()
	require.NoError(t, err)
	n, err := strconv.Atoi(info["Stats"]["total_reads_processed"])
	require.NoError(t, err)
	return n
}

// Ten free keys cost one round trip, and their release another.
func TestDoAll_costsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	g := newGuard(t, rdb, guard.WithTTL(neverRenewed))
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	require.NoError(t, g.DoAll(t.Context(), keys, nothing)) // the server learns the scripts
	for _, counter := range rdb.Keys(t.Context(), "onerun:*:fence").Val() {
		// at first they are ahead of the clock
		require.NoError(t, rdb.Set(t.Context(), counter, 1<<50, 0).Err())
	}
	require.Len(t, rdb.Keys(t.Context(), "onerun:*:fence").Val(), len(keys), "keys that share a counter need one more")
	server.ResetStats(t)
	const runs = 20
	for range runs {
		require.NoError(t, g.DoAll(t.Context(), keys, nothing))
	}
	calls := server.Calls(t)
	require.EqualValues(t, 2*runs, calls["evalsha"], "%v", calls)
	require.EqualValues(t, len(keys)*runs, calls["set"], "each key has a lease")
	require.EqualValues(t, runs, calls["mset"], "one command raises all counters")
	require.EqualValues(t, runs, calls["del"], "one command deletes all leases")
}
