package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A oneRedis is a Redis that restarts, as a service manager does it.
type oneRedis struct{ server *redistest.Server }

func startRedis(settings ...string) func(t testing.TB) deployment {
	return func(t testing.TB) deployment { return &oneRedis{redistest.Start(t, settings...)} }
}

func (r *oneRedis) ready(testing.TB) scene {
	to := link{Kind: "single", Addrs: []string{r.server.Addr()}, TTL: ttl}
	return scene{holder: to, asker: to, victims: []int{r.server.PID()}, key: "key", free: "free"}
}

func (r *oneRedis) failOver(testing.TB) { r.server.Restart() }

// A sentinelGroup is a master with two replicas. Sentinels replace the master.
type sentinelGroup struct {
	group    *redistest.Sentinel
	master   *redistest.Server
	replicas int // that acknowledge
	over     time.Time
}

func startSentinel(replicas int) func(t testing.TB) deployment {
	return func(t testing.TB) deployment {
		s := redistest.StartFarSentinel(t, 2, lag)
		return &sentinelGroup{group: s, master: s.Master, replicas: replicas}
	}
}

func (s *sentinelGroup) ready(testing.TB) scene {
	// Sentinels begin no failover within twice the failover-timeout of the one before.
	time.Sleep(time.Until(s.over.Add(4200 * time.Millisecond)))
	to := link{Kind: "sentinel", Addrs: s.group.SentinelAddrs(), TTL: ttl, Replicas: s.replicas, Direct: s.group.Direct()}
	return scene{holder: to, asker: to, victims: []int{s.master.PID()}, key: "key", free: "free"}
}

func (s *sentinelGroup) failOver(t testing.TB) {
	old := s.master
	s.master = s.group.WaitFailover(t)
	s.over = time.Now()
	s.group.Rejoin(t, old)
}

// A clusterOfSix has three masters with a replica each.
type clusterOfSix struct {
	cluster   *redistest.Cluster
	key, free string
	slot      int
	old       *redistest.Server
}

func startCluster(t testing.TB) deployment {
	c := &clusterOfSix{cluster: redistest.StartFarCluster(t, lag)}
	locker, closeAll, err := c.link().open()
	require.NoError(t, err)
	defer closeAll()
	// The key that is asked for, and the one that is free, are to be on the same master.
	first := c.slotOf(t, locker, "key")
	for i := 0; ; i++ {
		free := fmt.Sprint("free ", i)
		if c.cluster.OwnerOf(t, c.slotOf(t, locker, free)) == c.cluster.OwnerOf(t, first) {
			c.key, c.free, c.slot = "key", free, first
			return c
		}
	}
}

func (c *clusterOfSix) link() link {
	l := link{Kind: "cluster", TTL: ttl, Direct: c.cluster.Direct()}
	for _, node := range c.cluster.Nodes {
		l.Addrs = append(l.Addrs, node.Addr())
	}
	return l
}

// slotOf returns the slot of a key of a lease.
func (c *clusterOfSix) slotOf(t testing.TB, locker locker, key string) int {
	release := acquire(t, locker, key)
	defer release()
	for _, node := range c.cluster.Nodes {
		client := node.Client(t)
		keys, err := client.Keys(context.Background(), "*:lease:"+key).Result()
		require.NoError(t, err)
		_ = client.Close()
		if len(keys) > 0 {
			return c.cluster.SlotOf(t, keys[0])
		}
	}
	t.Fatalf("no node has the lease of %s", key)
	return 0
}

func (c *clusterOfSix) ready(t testing.TB) scene {
	c.old = c.cluster.OwnerOf(t, c.slot)
	return scene{holder: c.link(), asker: c.link(), victims: []int{c.old.PID()}, key: c.key, free: c.free}
}

func (c *clusterOfSix) failOver(t testing.TB) {
	require.Eventually(t, func() bool { return c.cluster.OwnerOf(t, c.slot) != c.old }, 30*time.Second, 20*time.Millisecond)
	c.old.Restart()
	c.cluster.AwaitReplicas(t)
}

// A redlockOfFive has servers that know nothing of each other. Some are killed.
type redlockOfFive struct {
	servers []*redistest.Server
	killed  []*redistest.Server
	kill    int
	restart bool // at once, and empty
	link    link
}

// startRedlock kills so many servers. They come back at once, or after the round.
func startRedlock(kill int, restart bool, ttl, minUptime time.Duration) func(t testing.TB) deployment {
	return func(t testing.TB) deployment {
		r := &redlockOfFive{servers: redistest.StartN(t, 5), kill: kill, restart: restart}
		r.link = link{Kind: "redlock", TTL: ttl, MinUptime: minUptime}
		for _, server := range r.servers {
			r.link.Addrs = append(r.link.Addrs, server.Addr())
		}
		return r
	}
}

func (r *redlockOfFive) ready(testing.TB) scene {
	if !r.restart {
		for _, server := range r.killed {
			server.Restart()
		}
	}
	r.killed = nil
	var victims []int
	for _, i := range rand.Perm(len(r.servers))[:r.kill] { //nolint:gosec // it need not be secret
		r.killed = append(r.killed, r.servers[i])
		victims = append(victims, r.servers[i].PID())
	}
	return scene{holder: r.link, asker: r.link, victims: victims, key: "key", free: "free"}
}

func (r *redlockOfFive) failOver(testing.TB) {
	if r.restart {
		for _, server := range r.killed {
			server.Restart()
		}
	}
}
