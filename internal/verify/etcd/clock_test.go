package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

// The clocks of the leader and of another server are set to hours ahead and hours back, in opposite
// directions. No lease is lost, none is granted to another process, and the key of a dead holder is
// free neither before its TTL has passed nor much later.
//
// Only "proof fault" runs this: it compiles etcd once more.
func TestServers_whoseClocksAreSet(t *testing.T) {
	servers, clocks := etcdtest.StartClocks(t, 3)
	holder, other := openGuard(t, servers), openGuard(t, servers)
	var leases []*guard.Lease
	for i := range 100 {
		lease, err := holder.Acquire(t.Context(), fmt.Sprint("held ", i))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	leader := slices.Index(servers, etcdtest.Leader(t, servers))
	fence := uint64(0)
	for _, jump := range []time.Duration{3 * time.Hour, -7 * time.Hour, 4 * time.Hour} {
		const ttl = 3 * time.Second
		due := time.Now().Add(ttl)
		dead, err := holder.Acquire(t.Context(), "dead", guard.WithTTL(ttl), guard.WithoutRenewal())
		require.NoError(t, err)
		require.Greater(t, dead.Fence(), fence)
		for server, by := range map[int]time.Duration{leader: jump, (leader + 1) % len(servers): -jump} {
			before := servers[server].Now(t)
			clocks[server].Jump(by)
			require.WithinDuration(t, before.Add(by), servers[server].Now(t), time.Minute, "its clock is set")
		}
		next, err := other.Acquire(t.Context(), "dead", guard.WithWait(time.Minute))
		late := time.Since(due)
		require.NoError(t, err)
		require.Positive(t, late, "the key was free before its TTL had passed")
		require.Less(t, late, 10*time.Second)
		t.Logf("clocks set by %v: the key of a dead holder was free after its TTL of %v by %v", jump, ttl, late)
		require.Greater(t, next.Fence(), dead.Fence())
		fence = next.Fence()
		require.NoError(t, next.Release(t.Context()))
		require.ErrorIs(t, dead.Release(t.Context()), guard.ErrLost)
		for i, lease := range leases {
			require.NoError(t, context.Cause(lease.Context()))
			err := other.Do(t.Context(), fmt.Sprint("held ", i), func(context.Context) error { return nil })
			require.ErrorIs(t, err, guard.ErrBusy)
		}
	}
	for _, lease := range leases {
		require.NoError(t, lease.Release(t.Context()))
	}
}

func openGuard(t *testing.T, servers []*etcdtest.Server) *guard.Guard {
	t.Helper()
	config := clientv3.Config{Logger: zap.NewNop()}
	for _, s := range servers {
		config.Endpoints = append(config.Endpoints, s.Endpoints()...)
	}
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	g, err := guard.New(etcd.New(client), guard.WithTTL(15*time.Second), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}
