package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	masterCount = 3
	slotCount   = 16384
)

// Cluster is masters that share the 16384 slots in equal ranges. They have no replicas, unless
// it was started by StartFarCluster.
type Cluster struct {
	Nodes []*Server // the masters, and then the replicas

	args   []string
	lag    time.Duration // between nodes, and direct has their addresses without it
	direct *directory
	admins map[*Server]*redis.Client
	buses  map[*Server]*port
}

// StartCluster is StartClusterN for three masters.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	return StartClusterN(t, masterCount, args...)
}

// StartClusterN returns when all nodes report cluster_state:ok and take writes, which Redis
// refuses for two seconds after a start. A node is held for dead after 15 seconds without an
// answer, Redis' own default: with one second, a busy machine on which a node did not get to run
// for that long brought the whole cluster down (CLUSTERDOWN). The args go to every node. A node
// that is restarted has its slots, and no keys.
func StartClusterN(t testing.TB, masters int, args ...string) *Cluster {
	t.Helper()
	Require(t)
	return startCluster(t, masters, 0, args)
}

func startCluster(t testing.TB, masters int, lag time.Duration, args []string) *Cluster {
	t.Helper()
	c := &Cluster{
		args: args, lag: lag, direct: newDirectory(), admins: map[*Server]*redis.Client{}, buses: map[*Server]*port{},
	}
	c.Nodes = c.startNodes(t, masters)
	if err := c.join(); err != nil {
		t.Fatalf("redistest: start a cluster: %v", err)
	}
	c.writeEverywhere(t)
	return c
}

// startNodes starts nodes that know nothing of each other yet.
func (c *Cluster) startNodes(t testing.TB, n int) []*Server {
	t.Helper()
	var mu sync.Mutex
	buses := map[*port]*port{}
	nodes := startAll(t, n, func(dir string, port *port) ([]string, error) {
		bus, err := holdBus(port)
		if err != nil {
			return nil, err
		}
		t.Cleanup(bus.release)
		mu.Lock()
		buses[port] = bus
		mu.Unlock()
		line := append(commandLine(dir, port), "--cluster-enabled", "yes", "--cluster-announce-ip", loopback)
		if knownBuild().atLeast7() {
			line = append(line, "--cluster-port", bus.String())
		}
		if c.lag > 0 {
			line = append(line, "--cluster-announce-port", c.direct.far(t, port, c.lag))
		}
		return append(line, c.args...), nil
	})
	for _, node := range nodes {
		c.admins[node], c.buses[node] = node.Client(t), buses[node.port]
	}
	return nodes
}

// busOffset is how far a node's bus is from its port, if the server has no option for it.
const busOffset = 10_000

func holdBus(of *port) (*port, error) {
	if knownBuild().atLeast7() {
		return holdPort()
	}
	bus, err := holdNumber(of.number + busOffset)
	if err != nil {
		return nil, errors.Join(errPortTaken, err) // another pair is tried
	}
	return bus, nil
}

// join deals out the slots and makes the nodes meet. The epochs are set first, while each node
// is alone: nodes with equal ones would have to settle that by themselves.
func (c *Cluster) join() error {
	ctx := context.Background()
	first := c.Nodes[0]
	for i, node := range c.Nodes {
		admin := c.admins[node]
		from, to := slotCount*i/len(c.Nodes), slotCount*(i+1)/len(c.Nodes)-1
		var slots []int
		for slot := from; slot <= to; slot++ {
			slots = append(slots, slot)
		}
		if err := admin.ClusterAddSlots(ctx, slots...).Err(); err != nil {
			return fmt.Errorf("give node %s the slots %d to %d: %w", node.Addr(), from, to, err)
		}
		if err := admin.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return fmt.Errorf("set the epoch of node %s: %w", node.Addr(), err)
		}
		if node == first {
			continue
		}
		if err := c.meet(node, first); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes {
		if err := poll(func() error { return c.settled(node, c.Nodes) }); err != nil {
			return err
		}
	}
	return nil
}

// meet sends CLUSTER MEET: the node adds the other one to its cluster.
func (c *Cluster) meet(node, other *Server) error {
	// go-redis has ClusterMeet, but without the port of the bus.
	err := c.admins[node].Do(context.Background(), "cluster", "meet", loopback, other.port.String(), c.buses[other].String()).Err()
	if err != nil {
		return fmt.Errorf("let node %s meet %s: %w", node.Addr(), other.Addr(), err)
	}
	return nil
}

// settled returns nil when the node sees all the others and the whole cluster at work, and has a
// link to and from each: until then what is published does not reach every node, and Redis does
// not send it again.
func (c *Cluster) settled(node *Server, all []*Server) error {
	info, err := c.admins[node].ClusterInfo(context.Background()).Result()
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Addr(), err)
	}
	known := fmt.Sprint("cluster_known_nodes:", len(all))
	for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", known} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("node %s does not report %s but:\n%s", node.Addr(), want, info)
		}
	}
	if !knownBuild().atLeast7() { // it has no CLUSTER LINKS; CLUSTER NODES shows links from here
		nodes, err := c.admins[node].ClusterNodes(context.Background()).Result()
		if got := strings.Count(nodes, " connected"); err == nil && got != len(all) {
			err = fmt.Errorf("node %s has %d nodes connected, not %d", node.Addr(), got, len(all))
		}
		return err
	}
	links, err := c.admins[node].ClusterLinks(context.Background()).Result()
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Addr(), err)
	}
	if want := 2 * (len(all) - 1); len(links) != want {
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
