package redistest

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"
)

// SlotOf is the slot of a key.
func (c *Cluster) SlotOf(t testing.TB, key string) int {
	t.Helper()
	slot, err := c.admins[c.Nodes[0]].ClusterKeySlot(context.Background(), key).Result()
	if err != nil {
		t.Fatalf("redistest: find the slot of %q: %v", key, err)
	}
	return int(slot)
}

// OwnerOf is the node that serves the slot, in the eyes of the first node that answers.
func (c *Cluster) OwnerOf(t testing.TB, slot int) *Server {
	t.Helper()
	for _, eyes := range c.Nodes {
		//nolint:staticcheck // its successor says the same in more words
		ranges, _ := c.admins[eyes].ClusterSlots(context.Background()).Result()
		for _, r := range ranges {
			if slot < r.Start || slot > r.End {
				continue
			}
			for _, node := range c.Nodes {
				if c.direct.announced(node) == r.Nodes[0].Addr {
					return node
				}
			}
		}
	}
	t.Fatalf("redistest: nobody owns slot %d", slot)
	return nil
}

// KeyOn makes up a key that the node serves, the same at each call while no slot moves.
func (c *Cluster) KeyOn(t testing.TB, node *Server) string {
	t.Helper()
	for i := range slotCount {
		key := "key-" + strconv.Itoa(i)
		if c.OwnerOf(t, c.SlotOf(t, key)) == node {
			return key
		}
	}
	t.Fatalf("redistest: node %s owns no slot", node.Addr())
	return ""
}

// Move is a slot on its way between two nodes: the old one serves the keys it still has and
// answers ASK for the others. A script with keys on both nodes is answered TRYAGAIN by the new.
type Move struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// MoveSlot moves a slot with its keys, live, and returns when all nodes know the new owner.
func (c *Cluster) MoveSlot(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	c.BeginMove(t, slot, from, to).Finish(t)
}

// Other returns a master that is not the given one.
func (c *Cluster) Other(than *Server) *Server {
	if c.Nodes[0] == than {
		return c.Nodes[1]
	}
	return c.Nodes[0]
}

// BeginMove opens a slot for moving, and moves nothing yet. The test should Finish the move.
func (c *Cluster) BeginMove(t testing.TB, slot int, from, to *Server) *Move {
	t.Helper()
	m := &Move{cluster: c, slot: slot, from: from, to: to}
	m.do(t, to, "cluster", "setslot", slot, "importing", m.id(t, from))
	m.do(t, from, "cluster", "setslot", slot, "migrating", m.id(t, to))
	return m
}

// Keys moves the keys that the slot has now. The slot stays open, and the old node its owner.
func (m *Move) Keys(t testing.TB) {
	t.Helper()
	const batch = 100
	host, port, _ := net.SplitHostPort(m.to.Addr())
	for {
		keys, err := m.cluster.admins[m.from].ClusterGetKeysInSlot(context.Background(), m.slot, batch).Result()
		if err != nil {
			t.Fatalf("redistest: move slot %d: list its keys on %s: %v", m.slot, m.from.Addr(), err)
		}
		if len(keys) == 0 {
			return
		}
		migrate := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			migrate = append(migrate, key)
		}
		m.do(t, m.from, migrate...)
	}
}

// Finish moves the keys that are left and makes the new node the owner. It sends SETSLOT to the
// new node first: otherwise another node could redirect a command there, and the new node would
// refuse it.
func (m *Move) Finish(t testing.TB) {
	t.Helper()
	m.Keys(t)
	owner := m.id(t, m.to)
	m.do(t, m.to, "cluster", "setslot", m.slot, "node", owner)
	for _, node := range m.cluster.Nodes {
		if node != m.to {
			m.do(t, node, "cluster", "setslot", m.slot, "node", owner)
		}
	}
}

func (m *Move) id(t testing.TB, node *Server) string {
	t.Helper()
	id, err := m.cluster.admins[node].Do(context.Background(), "cluster", "myid").Text()
	if err != nil {
		t.Fatalf("redistest: move slot %d: ask node %s for its id: %v", m.slot, node.Addr(), err)
	}
	return id
}

func (m *Move) do(t testing.TB, node *Server, command ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := m.cluster.admins[node].Do(ctx, command...).Err(); err != nil {
		t.Fatalf("redistest: move slot %d: %v on node %s: %v", m.slot, command, node.Addr(), err)
	}
}
