package redisstore

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// nodes are the lanes to the masters of a Cluster: what is for one node travels together, in one
// script where the keys are in one slot and in one pipeline where not.
type nodes struct {
	cluster *redis.ClusterClient
	whole   *lane // by which go-redis finds the node

	mu     sync.RWMutex
	bySlot map[int]*lane           // found so far, since something has moved
	byNode map[*redis.Client]*lane // all of them
	setups []func(*redis.Client)   // of clients of our own
}

func newNodes(cluster *redis.ClusterClient) *nodes {
	return &nodes{
		cluster: cluster, whole: newLane(cluster), bySlot: map[int]*lane{}, byNode: map[*redis.Client]*lane{},
	}
}

// known returns the lane of a slot if it was found before.
func (n *nodes) known(slot int) *lane {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.bySlot[slot]
}

// find asks go-redis for the node that has the key, which may have to ask the Cluster.
func (n *nodes) find(ctx context.Context, key string) (*lane, error) {
	node, err := n.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.to(node)
	n.bySlot[Slot(key)] = l
	return l, nil
}

// to returns the lane to a node. n.mu must be held.
func (n *nodes) to(node *redis.Client) *lane {
	l := n.byNode[node]
	if l == nil {
		l = newLane(node)
		l.apart.Store(oneSlot)
		l.moved = n.resend
		l.setUp(n.setups)
		n.byNode[node] = l
	}
	return l
}

// send sends a request by the lane to its node, when that is found.
func (n *nodes) send(r *request) {
	l, err := n.find(r.ctx, r.call.key)
	if err != nil {
		r.finish(nil, err)
		return
	}
	l.send(r)
}

// resend sends a request that a node has refused by the Cluster's client, which follows where its
// key has gone.
func (n *nodes) resend(r *request) {
	n.forget()
	go n.whole.flyAlone(r)
}

// heed has the nodes of slots be looked up anew if err says that they may be others by now. The
// client of the Cluster does not see what its nodes' own clients do.
func (n *nodes) heed(err error) {
	if (isMoved(err) || spoilt(err)) && kindOf(err) != driver.KindCanceled {
		n.forget()
	}
}

func (n *nodes) forget() {
	n.mu.Lock()
	clear(n.bySlot)
	n.mu.Unlock()
	n.cluster.ReloadState(context.Background())
}

// laneNow returns the lane by which the request goes, or nil if that cannot be known without
// asking a Cluster.
func (s *Store) laneNow(r *request) *lane {
	if s.nodes == nil {
		return s.lane
	}
	return s.nodes.known(r.inSlot())
}
