package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// cautious are the backends with WithMinUptime.
var cautious = map[string]func(redis.UniversalClient, time.Duration) guard.Locker{
	"single": func(rdb redis.UniversalClient, d time.Duration) guard.Locker {
		return single.New(rdb, single.WithMinUptime(d))
	},
	"reentrant": func(rdb redis.UniversalClient, d time.Duration) guard.Locker {
		return reentrant.New(rdb, reentrant.WithMinUptime(d))
	},
}

func nothing(context.Context) error { return nil }

func TestMinUptime_aServerThatRestartedGrantsNothingUntilAllItForgotHasEnded(t *testing.T) {
	t.Parallel()
	for name, locker := range cautious {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clock := redistest.StartWithClock(t)
			const longest = time.Minute
			g, err := guard.New(locker(server.Client(t), longest), guard.WithTTL(longest))
			require.NoError(t, err)
			requireRestarted := func(uptime time.Duration) {
				t.Helper()
				clock.Jump(uptime)
				awaitUptime(t, server, int(uptime/time.Second)-1)
				var failed *guard.StoreError
				require.ErrorAs(t, g.Do(t.Context(), "k", nothing), &failed)
				require.Equal(t, driver.KindRestarted, failed.Kind)
				clock.Jump(longest)
				awaitUptime(t, server, int(longest/time.Second))
			}
			requireRestarted(0) // a server that has just started may have restarted
			lease, err := g.Acquire(t.Context(), "k")
			require.NoError(t, err)
			server.Restart()
			requireRestarted(longest / 2)
			require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
				require.Greater(t, guard.Fence(ctx), lease.Fence())
				return nil
			}))
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

func TestMinUptime_refusesLeasesThatLastLonger(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, locker := range cautious {
		t.Run(name, func(t *testing.T) {
			g, err := guard.New(locker(server.Client(t), time.Second), guard.WithTTL(2*time.Second))
			require.NoError(t, err)
			var failed *guard.StoreError
			require.ErrorAs(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Hour)), &failed)
			require.Equal(t, driver.KindSettings, failed.Kind)
			require.ErrorContains(t, failed, "WithMinUptime(1s) is shorter than the lease's TTL of 2s")
			_, err = guard.New(locker(server.Client(t), 0))
			var refused *guard.SettingError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "WithMinUptime", refused.Setting)
		})
	}
}

// Such a claim is not sent either: the store would grant it, and nobody would release it.
func TestMinUptime_refusesLongLeasesInABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, locker := range cautious {
		t.Run(name, func(t *testing.T) {
			rdb := server.Client(t)
			l := locker(rdb, time.Second)
			short := driver.Claim{Key: name + "-short", ID: "a", Owner: "a", TTL: time.Second}
			require.Eventually(t, func() bool { // the server has been up for long enough
				_, err := l.TryAcquire(t.Context(), short)
				return err == nil
			}, settled, 50*time.Millisecond)
			long := driver.Claim{Key: name + "-long", ID: "b", Owner: "b", TTL: 2 * time.Second}
			errs := make([]error, 3)
			driver.Await(t.Context(), l, driver.OpAcquire, []driver.Claim{long, short, long}, driver.After{},
				func(i int, _ driver.Answer, err error) { errs[i] = err })
			for _, i := range []int{0, 2} {
				var failed *guard.StoreError
				require.ErrorAs(t, errs[i], &failed)
				require.Equal(t, driver.KindSettings, failed.Kind)
				require.Equal(t, long.Key, failed.Key)
			}
			require.NoError(t, errs[1])
			require.Empty(t, rdb.Keys(t.Context(), "*"+long.Key+"*").Val())
		})
	}
}

// The holder has its lease on two nodes of three, one of which restarts empty: without
// WithMinUptime that one and the third would be a majority for somebody else.
func TestMinUptime_aQuorumDoesNotCountANodeThatRestarted(t *testing.T) {
	t.Parallel()
	const longest = time.Minute
	var servers [3]*redistest.Server
	var nodes []guard.Locker
	for i := range servers {
		server, clock := redistest.StartWithClock(t)
		clock.Jump(2 * longest) // it has been up for long enough
		servers[i], nodes = server, append(nodes, single.New(server.Client(t), single.WithMinUptime(longest)))
	}
	claim := driver.Claim{Key: "k", ID: "holder", Owner: "holder", TTL: longest}
	require.Eventually(t, func() bool { // a server looks at its clock ten times in a second
		for _, n := range nodes {
			if _, err := n.TryAcquire(t.Context(), claim); err != nil {
				return false
			}
		}
		return true
	}, settled, 10*time.Millisecond)
	held, err := nodes[2].Release(t.Context(), claim, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
	servers[1].Kill()
	servers[1].Restart()
	rival := claim
	rival.ID, rival.Owner = "rival", "rival"
	grant, err := redlock.New(nodes).TryAcquire(t.Context(), rival)
	require.NoError(t, err)
	require.Equal(t, driver.Busy, grant.State)
}
