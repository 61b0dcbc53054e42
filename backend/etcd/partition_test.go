package etcd_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// The leader is cut off from the other servers, while clients still reach it. Those that reach it
// alone lose their leases in time, before the others grant the keys. Those that reach all servers
// lose none.
func TestLong_theOldLeaderIsCutOff(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	const n, ttl = 100, 3 * time.Second
	servers := etcdtest.StartNetwork(t, 3)
	old := etcdtest.Leader(t, servers)
	rest := slices.DeleteFunc(slices.Clone(servers), func(s *etcdtest.Server) bool { return s == old })
	cut, well := hold(t, etcd.New(connect(t, old)), "cut", n, ttl), hold(t, etcd.New(connect(t, servers...)), "well", n, ttl)
	began := time.Now()
	old.Isolate()
	for _, c := range []*crowd{cut, well} {
		defer c.claim(etcd.New(connect(t, rest...)))()
	}
	require.Eventually(t, func() bool { return cut.lost() == n }, 30*time.Second, 10*time.Millisecond)
	lost := time.Since(began)
	require.Less(t, lost, ttl+time.Second)
	require.Eventually(t, func() bool { return cut.takeover() == n }, 30*time.Second, 10*time.Millisecond)
	t.Logf("the holders knew after %v, and claimants had all keys after %v", lost, time.Since(began))
	require.Zero(t, well.lost())
	require.Zero(t, well.takeover())
	old.Rejoin()
	awaitGrant(t, etcd.New(connect(t, old)), claim("again"))
	cut.end()
	well.end()
}
