package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// StartFarCluster starts three masters with a replica each, and a lag between the nodes. The
// addresses that nodes give to clients have it as well: Direct has those without. A node is held
// for dead after two seconds. Methods that move slots are for a cluster without replicas.
func StartFarCluster(t testing.TB, lag time.Duration) *Cluster {
	t.Helper()
	Require(t)
	c := startCluster(t, masterCount, lag, []string{"--cluster-node-timeout", "2000"})
	c.addReplicas(t)
	return c
}

// Direct returns the addresses of nodes without the lag, by those that have it.
func (c *Cluster) Direct() map[string]string { return c.direct.all() }

func (c *Cluster) addReplicas(t testing.TB) {
	t.Helper()
	masters := slices.Clone(c.Nodes)
	replicas := c.startNodes(t, len(masters))
	c.Nodes = append(c.Nodes, replicas...)
	for i, replica := range replicas {
		err := c.meet(replica, masters[0])
		if err == nil {
			id := (&Move{cluster: c}).id(t, masters[i])
			err = poll(func() error { return c.admins[replica].ClusterReplicate(context.Background(), id).Err() })
		}
		if err != nil {
			t.Fatalf("redistest: replicate %s: %v", masters[i].Addr(), err)
		}
	}
	c.AwaitReplicas(t)
}

// AwaitReplicas waits until all nodes are up, and half of them are masters with a replica each that
// is in sync.
func (c *Cluster) AwaitReplicas(t testing.TB) {
	t.Helper()
	if err := poll(c.replicated); err != nil {
		t.Fatalf("redistest: replicas of a cluster: %v", err)
	}
}

func (c *Cluster) replicated() error {
	masters := 0
	for _, node := range c.Nodes {
		if err := c.settled(node, c.Nodes); err != nil {
			return err
		}
		info, err := c.admins[node].Info(context.Background(), "replication").Result()
		switch {
		case err != nil:
			return err
		case strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up"):
		case strings.Contains(info, "role:master") && strings.Contains(info, "state=online"):
			masters++
		default:
			return fmt.Errorf("node %s is not in sync:\n%s", node.Addr(), info)
		}
	}
	if 2*masters != len(c.Nodes) {
		return fmt.Errorf("there are %d masters", masters)
	}
	return nil
}
