package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	masterCount = 3
	slotCount   = 16384
)

// Cluster is three masters without replicas that share the 16384 slots in equal ranges.
type Cluster struct {
	Nodes []*Server

	admins map[*Server]*redis.Client
}

// StartCluster returns when all nodes report cluster_state:ok and take writes, which Redis
// refuses for two seconds after a start. A node is held for dead after 15 seconds without an
// answer, Redis' own default: with one second, a busy machine on which a node did not get to run
// for that long brought the whole cluster down (CLUSTERDOWN). The args go to every node. A node
// that is restarted has its slots, and no keys.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	Require(t)
	c := &Cluster{admins: map[*Server]*redis.Client{}}
	c.Nodes = startAll(t, masterCount, func(dir string, port *port) ([]string, error) {
		bus, err := holdPort()
		if err != nil {
			return nil, err
		}
		t.Cleanup(bus.release)
		return append(append(commandLine(dir, port), "--cluster-enabled", "yes", "--cluster-port", bus.String(),
			"--cluster-announce-ip", loopback), args...), nil
	})
	for _, node := range c.Nodes {
		c.admins[node] = node.Client(t)
	}
	if err := c.join(); err != nil {
		t.Fatalf("redistest: start a cluster: %v", err)
	}
	c.writeEverywhere(t)
	return c
}

// join deals out the slots and makes the nodes meet. The epochs are set first, while each node
// is alone: nodes with equal ones would have to settle that by themselves.
func (c *Cluster) join() error {
	ctx := context.Background()
	first := c.Nodes[0]
	bus, err := c.admins[first].ConfigGet(ctx, "cluster-port").Result()
	if err != nil {
		return fmt.Errorf("ask node %s for its bus: %w", first.Addr(), err)
	}
	for i, node := range c.Nodes {
		admin := c.admins[node]
		from, to := slotCount*i/masterCount, slotCount*(i+1)/masterCount-1
		if err := admin.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
			return fmt.Errorf("give node %s the slots %d to %d: %w", node.Addr(), from, to, err)
		}
		if err := admin.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return fmt.Errorf("set the epoch of node %s: %w", node.Addr(), err)
		}
		if node == first {
			continue
		}
		// go-redis has ClusterMeet, but without the port of the bus.
		if err := admin.Do(ctx, "cluster", "meet", loopback, first.port.String(), bus["cluster-port"]).Err(); err != nil {
			return fmt.Errorf("let node %s meet %s: %w", node.Addr(), first.Addr(), err)
		}
	}
	for _, node := range c.Nodes {
		if err := poll(func() error { return c.settled(node) }); err != nil {
			return err
		}
	}
	return nil
}

// settled returns nil when the node sees all the others and the whole cluster at work, and has a
// link to and from each: until then what is published does not reach every node, and Redis does
// not send it again.
func (c *Cluster) settled(node *Server) error {
	info, err := c.admins[node].ClusterInfo(context.Background()).Result()
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Addr(), err)
	}
	for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3", "cluster_size:3"} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("node %s does not report %s but:\n%s", node.Addr(), want, info)
		}
	}
	links, err := c.admins[node].ClusterLinks(context.Background()).Result()
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Addr(), err)
	}
	if want := 2 * (masterCount - 1); len(links) != want {
		return fmt.Errorf("node %s has %d links, not %d", node.Addr(), len(links), want)
	}
	return nil
}

// writeEverywhere writes through go-redis until each node has taken a key, and starts the
// counters anew.
func (c *Cluster) writeEverywhere(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	client := c.Client(t)
	for _, node := range c.Nodes {
		key := c.KeyOn(t, node)
		if err := poll(func() error { return client.Set(ctx, key, "", 0).Err() }); err != nil {
			t.Fatalf("redistest: start a cluster: write to node %s: %v", node.Addr(), err)
		}
		if err := c.admins[node].FlushAll(ctx).Err(); err != nil {
			t.Fatalf("redistest: start a cluster: empty node %s: %v", node.Addr(), err)
		}
	}
	_ = client.Close() // closed again, in vain, by its cleanup
	for _, node := range c.Nodes {
		node.ResetStats(t)
	}
}

// Client returns a go-redis client of the cluster, closed when the test ends. Each configure may
// change its options, which are those of go-redis but for the two that [Server.Client] names.
func (c *Cluster) Client(t testing.TB, configure ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	options := &redis.ClusterOptions{
		Addrs: addrs(c.Nodes), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, change := range configure {
		change(options)
	}
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}
