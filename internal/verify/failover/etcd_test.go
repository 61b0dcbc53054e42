package failover_test

import (
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

// An etcdCluster has three servers. The other two elect a leader.
type etcdCluster struct {
	servers []*etcdtest.Server
	killed  *etcdtest.Server
}

func startEtcd(t testing.TB) deployment {
	return &etcdCluster{servers: etcdtest.StartCluster(t, 3)}
}

func (c *etcdCluster) ready(t testing.TB) scene {
	if c.killed != nil {
		c.killed.Restart(t)
	}
	c.killed = etcdtest.Leader(t, c.servers)
	to := link{Kind: "etcd", TTL: ttl}
	for _, s := range c.servers {
		to.Addrs = append(to.Addrs, s.Endpoints()...)
	}
	return scene{holder: to, asker: to, victims: []int{c.killed.PID()}, key: "key", free: "free"}
}

func (c *etcdCluster) failOver(t testing.TB) {
	c.killed.Kill() // returns when it has ended
	etcdtest.Leader(t, c.servers)
}
