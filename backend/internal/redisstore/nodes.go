package redisstore

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// nodes are the lanes to the masters of a Cluster: what is for one node travels together, in one
// script where the keys are in one slot and in one pipeline where not.
type nodes struct {
	cluster *redis.ClusterClient
	whole   *lane       // by which go-redis finds the node
	loaded  atomic.Bool // go-redis knows the slots: it does not have to ask the Cluster

	mu     sync.RWMutex
	byNode map[*redis.Client]*lane
	setups []func(*redis.Client) // of clients of our own
	apart  int32                 // what a node does not take in one script
}

func newNodes(cluster *redis.ClusterClient) *nodes {
	return &nodes{cluster: cluster, whole: newLane(cluster), byNode: map[*redis.Client]*lane{}, apart: oneSlot}
}

// find asks go-redis for the node that has the key. If the slots are not loaded, it has to ask the
// Cluster.
func (n *nodes) find(ctx context.Context, key string) (*lane, error) {
	node, err := n.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	n.loaded.Store(true)
	n.mu.RLock()
	l := n.byNode[node]
	n.mu.RUnlock()
	if l == nil {
		l = n.add(node)
	}
	return l, nil
}

// add returns a lane to a node, and drops those that nothing has used for some time: their nodes
// may have left.
func (n *nodes) add(node *redis.Client) *lane {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.byNode[node]; l != nil {
		return l
	}
	maps.DeleteFunc(n.byNode, func(_ *redis.Client, l *lane) bool { return l.unused() })
	l := newLane(node)
	l.apart.Store(n.apart)
	l.moved = n.resend
	l.setUp(n.setups)
	n.byNode[node] = l
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

// resend sends a request that a node has refused, or whose node has left, by the Cluster's client,
// which follows where its key has gone.
func (n *nodes) resend(r *request) {
	n.cluster.ReloadState(context.Background())
	go n.whole.flyAlone(r)
}

// errNodeLeft takes the place of the error of a node's client that go-redis has closed, as the node
// is not in the Cluster any more.
var errNodeLeft = refusal("MOVED: the node has left the Cluster")

// elsewhere reports whether err says that a node has not run a command, and another one may.
func elsewhere(err error) bool { return isMoved(err) || errors.Is(err, redis.ErrClosed) }

// heed has the nodes of slots be looked up anew if err says that they may be others by now. The
// client of the Cluster does not see what its nodes' own clients do.
func (n *nodes) heed(err error) {
	if (isMoved(err) || spoilt(err)) && kindOf(err) != driver.KindCanceled {
		n.cluster.ReloadState(context.Background())
	}
}

// laneNow returns the lane by which the request goes, or nil if that cannot be known without
// asking a Cluster.
func (s *Store) laneNow(r *request) *lane {
	if s.nodes == nil {
		return s.lane
	}
	if !s.nodes.loaded.Load() {
		return nil
	}
	l, _ := s.nodes.find(r.ctx, r.call.key)
	return l
}
