package redistest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replace has a new node take the slots of a node, with their keys, live, as operators do before
// they take a machine away. The old node is then forgotten by all others and killed. Nodes has the
// new one in its place.
func (c *Cluster) Replace(t testing.TB, old *Server) *Server {
	t.Helper()
	fresh := c.startNodes(t, 1)[0]
	at := slices.Index(c.Nodes, old)
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(node *Server) bool { return node == old })
	all := append(slices.Clone(c.Nodes), fresh)
	if err := c.meet(fresh, others[0]); err != nil {
		t.Fatalf("redistest: replace a node: %v", err)
	}
	for _, node := range all {
		if err := poll(func() error { return c.settled(node, all) }); err != nil {
			t.Fatalf("redistest: replace a node: %v", err)
		}
	}
	c.moveAll(t, old, fresh, others)
	// A node that still knows the old one announces it to the others again.
	oldID := (&Move{cluster: c}).id(t, old)
	for _, node := range append(others, fresh) {
		if err := poll(func() error { return c.admins[node].ClusterForget(context.Background(), oldID).Err() }); err != nil {
			t.Fatalf("redistest: replace a node: let node %s forget %s: %v", node.Addr(), old.Addr(), err)
		}
	}
	old.Kill()
	c.Nodes = slices.Clone(c.Nodes)
	c.Nodes[at] = fresh
	return fresh
}

// moveAll moves all slots of a node, all at the same time.
func (c *Cluster) moveAll(t testing.TB, from, to *Server, others []*Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m := &Move{cluster: c, from: from, to: to}
	slots := c.slotsOf(t, from)
	setSlots := func(node *Server, state, id string) {
		_, err := c.admins[node].Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, slot := range slots {
				p.Do(ctx, "cluster", "setslot", slot, state, id)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("redistest: move %d slots: %s on node %s: %v", len(slots), state, node.Addr(), err)
		}
	}
	fromID, toID := m.id(t, from), m.id(t, to)
	setSlots(to, "importing", fromID)
	setSlots(from, "migrating", toID)
	// From here on the node gets no new keys.
	for _, slot := range c.slotsWithKeys(t, from) {
		m.slot = slot
		m.Keys(t)
	}
	// The old node learns of the new owner from the others. It then becomes a replica of the new
	// node, and a replica refuses SETSLOT.
	setSlots(to, "node", toID)
	for _, node := range others {
		setSlots(node, "node", toID)
	}
}

// slotsOf returns the slots that a node serves, in its own eyes.
func (c *Cluster) slotsOf(t testing.TB, node *Server) (slots []int) {
	t.Helper()
	//nolint:staticcheck // its successor says the same in more words
	ranges, err := c.admins[node].ClusterSlots(context.Background()).Result()
	if err != nil {
		t.Fatalf("redistest: list the slots of node %s: %v", node.Addr(), err)
	}
	for _, r := range ranges {
		for slot := r.Start; slot <= r.End && r.Nodes[0].Addr == node.Addr(); slot++ {
			slots = append(slots, slot)
		}
	}
	return slots
}

// slotsWithKeys returns the slots of which a node has keys.
func (c *Cluster) slotsWithKeys(t testing.TB, node *Server) []int {
	t.Helper()
	ctx := context.Background()
	keys, err := c.admins[node].Keys(ctx, "*").Result()
	var slots []int
	for _, key := range keys {
		var slot int64
		if slot, err = c.admins[node].ClusterKeySlot(ctx, key).Result(); err != nil {
			break
		}
		slots = append(slots, int(slot))
	}
	if err != nil {
		t.Fatal(fmt.Errorf("redistest: list the keys of node %s: %w", node.Addr(), err))
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}
