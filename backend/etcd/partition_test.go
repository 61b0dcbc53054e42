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
	const n, ttl = 20, 18 * time.Second // the machine may stall
	servers := etcdtest.StartNetwork(t, 3)
	old := etcdtest.Leader(t, servers)
	rest := slices.DeleteFunc(slices.Clone(servers), func(s *etcdtest.Server) bool { return s == old })
	well, cut := hold(t, etcd.New(connect(t, servers...)), "well", n, ttl), hold(t, etcd.New(connect(t, old)), "cut", n, 3*time.Second)
	began := time.Now()
	old.Isolate()
	for _, c := range []*crowd{cut, well} {
		defer c.claim(etcd.New(connect(t, rest...)))()
	}
	require.Eventually(t, func() bool { return cut.lost() == n }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return cut.takeover() == n }, time.Minute, 10*time.Millisecond)
	time.Sleep(time.Until(began.Add(ttl / 2))) // each of the others has been renewed
	require.Zero(t, well.lost())
	require.Zero(t, well.takeover())
	old.Rejoin()
	awaitGrant(t, etcd.New(connect(t, old)), claim("again"))
	cut.end()
	well.end()
}
