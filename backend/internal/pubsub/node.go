package pubsub

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

// A nodeConn keeps a connection to a node while there are subscriptions for it. If the connection
// breaks, it makes another.
type nodeConn struct {
	subscriber *Subscriber
	node       *redis.Client // nil if any node will do
	end        context.CancelFunc
	changes    chan struct{} // has something in it if changed is not empty

	// Subscriber.mu guards what follows.
	subscriptions map[string]*subscription // by channel
	changed       map[string]struct{}      // channels, since the last call of takeChanges
}

// openNode returns a new nodeConn for the node. It ends with its last subscription. s.mu must be
// held.
func (s *Subscriber) openNode(node *redis.Client) *nodeConn {
	ctx, cancel := context.WithCancel(context.Background())
	n := &nodeConn{
		subscriber: s, node: node, end: cancel, changes: make(chan struct{}, 1),
		subscriptions: map[string]*subscription{}, changed: map[string]struct{}{},
	}
	s.nodes[node] = n
	go n.run(ctx)
	return n
}

func (n *nodeConn) add(sub *subscription) {
	sub.node = n
	n.subscriptions[sub.channel] = sub
	n.change(sub.channel)
}

// remove removes a subscription. The last one ends the nodeConn. Subscriber.mu must be held.
func (n *nodeConn) remove(sub *subscription) {
	sub.node, sub.live = nil, false
	delete(n.subscriptions, sub.channel)
	n.change(sub.channel)
	if len(n.subscriptions) == 0 {
		delete(n.subscriber.nodes, n.node)
		n.end()
	}
}

func (n *nodeConn) change(channel string) {
	n.changed[channel] = struct{}{}
	select {
	case n.changes <- struct{}{}:
	default:
	}
}

// run makes connections until the nodeConn ends.
func (n *nodeConn) run(ctx context.Context) {
	defer n.end()
	for failures := 1; ; failures++ {
		start := time.Now()
		_ = rediserr.Recovered(func() error { // a hook's panic has broken the connection
			newConn(n).serve(ctx)
			return nil
		})
		if time.Since(start) > longestRetry {
			failures = 1
		}
		n.disconnected(ctx)
		if ctx.Err() != nil || !pause(ctx, failures) {
			return
		}
		n.reassign(ctx)
	}
}

// disconnected notes that there is no connection. The next connection must subscribe to all
// channels.
func (n *nodeConn) disconnected(ctx context.Context) {
	s := n.subscriber
	if cluster := s.cluster(); cluster != nil && ctx.Err() == nil {
		cluster.ReloadState(context.Background()) // the node may have lost its slots
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, sub := range n.subscriptions {
		sub.live = false
		n.changed[channel] = struct{}{}
	}
}

// reassign moves subscriptions whose slot now belongs to another node.
func (n *nodeConn) reassign(ctx context.Context) {
	s := n.subscriber
	s.mu.Lock()
	subscriptions := slices.Collect(maps.Values(n.subscriptions))
	s.mu.Unlock()
	for _, sub := range subscriptions {
		if node, err := s.node(ctx, sub.channel); err == nil && node != n.node {
			s.move(sub, node)
		}
	}
}

// takeChanges returns the present subscription of each channel that has changed, or nil if the
// channel has none.
func (n *nodeConn) takeChanges() map[string]*subscription {
	n.subscriber.mu.Lock()
	defer n.subscriber.mu.Unlock()
	present := make(map[string]*subscription, len(n.changed))
	for channel := range n.changed {
		present[channel] = n.subscriptions[channel]
	}
	clear(n.changed)
	return present
}
