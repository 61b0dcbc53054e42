package faults_test

import (
	"context"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Faults of a Cluster.
var slotRows = []row{
	{number: 21, name: "a slot moves under a held lease", backends: []string{"cluster", "cluster of reentrant"}, run: slotMoves},
}

// slotMoves moves the slot of a held lease around the nodes, while others loop, and stops on the
// way: when the slot is open and its keys are on the old node, and when they are on the new one.
func slotMoves(s *scene) {
	w, other := s.worker(patiently), s.worker(patiently)
	fence := w.fence("hold k " + calmLimit.String())
	w.ask("write k")
	s.loop(2)
	from, key := s.find("k")
	cluster, nodes := s.deployment.cluster, s.deployment.servers
	slot := cluster.SlotOf(s.t, key)
	for range nodes {
		to := nodes[0]
		for i, node := range nodes {
			if node == from {
				to = nodes[(i+1)%len(nodes)]
			}
		}
		move := cluster.BeginMove(s.t, slot, from, to)
		s.pass(ttl) // in which loops ask, and here and below renewals come by
		move.Keys(s.t)
		s.requireTaken(w, other)
		s.pass(ttl)
		move.Finish(s.t)
		at, _ := s.find("k")
		s.proven(at == to && cluster.OwnerOf(s.t, slot) == to, "slot %d has moved, with %s", slot, key)
		s.requireTaken(w, other)
		s.pass(patient / 2) // for a renewal by the new node
		require.Equal(s.t, "true", w.ask("valid k"))
		from = to
	}
	w.ask("release k")
	require.Greater(s.t, other.fence("take k"), fence)
	s.keys["k"] = true
}

// requireTaken asserts that the lease of one is valid, and that another does not get the key.
func (s *scene) requireTaken(holder, other *worker) {
	s.t.Helper()
	_, granted := other.try("hold k")
	require.False(s.t, granted)
	require.Equal(s.t, "true", holder.ask("valid k"))
}

// find returns the node of a Cluster that has the lease on a key, and the name under which it has
// it.
func (s *scene) find(key string) (*redistest.Server, string) {
	s.t.Helper()
	for _, node := range s.deployment.servers {
		names, err := node.Client(s.t).Keys(context.Background(), "*").Result()
		require.NoError(s.t, err)
		for _, name := range names {
			if name == key || strings.HasSuffix(name, "{"+key+"}") || strings.HasSuffix(name, ":"+key) {
				return node, name
			}
		}
	}
	require.Fail(s.t, "no node has a lease", "on %s", key)
	return nil, ""
}
