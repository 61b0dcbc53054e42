// Package pubsub receives what the backends publish when a key is released: it subscribes to the
// channels of keys that callers wait for.
package pubsub

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

// Via is the command that publishes messages. It decides how to subscribe to them.
type Via uint8

// The commands that publish.
const (
	// ViaPlain is PUBLISH.
	ViaPlain Via = iota
	// ViaSharded is SPUBLISH. A server that does not know it, Redis before 7, gets PUBLISH.
	ViaSharded
	// ViaBoth is both commands.
	ViaBoth
)

// linger is how long a channel stays subscribed without receivers. A process that takes turns at a
// key with others soon waits for it again, and then sends no command to subscribe.
const linger = 100 * time.Millisecond

// A Subscriber subscribes to channels and passes their messages to receivers. All channels share
// one connection. On a Cluster, unless Via is ViaPlain, they share one connection to each master
// that has any of them. A connection ends soon after its last receiver has stopped. A Subscriber is
// safe for concurrent use.
//
// Messages can be lost, so a waiter must also poll now and then.
type Subscriber struct {
	client redis.UniversalClient
	via    Via

	mu            sync.Mutex
	subscriptions map[string]*subscription    // by channel
	nodes         map[*redis.Client]*nodeConn // by node, or nil if any node will do
}

// A subscription is a channel that has receivers, or had some a moment ago. Subscriber.mu guards
// it.
type subscription struct {
	channel   string
	receivers map[*receiver]struct{}
	named     map[string]*receiver // by name, see SubscribeNamed
	unknown   func(name string)    // or nil, see SubscribeNamed
	node      *nodeConn            // nil while the node is not known
	live      bool                 // the server has confirmed the subscription
	refusals  int                  // in a row
	cancel    context.CancelFunc   // ends the search for the node
	expiry    *time.Timer          // calls expire; nil if there have always been receivers
}

type receiver struct {
	name    string // or "", see SubscribeNamed
	receive func(message string)
}

// New returns a Subscriber to messages that are published via that command.
func New(client redis.UniversalClient, via Via) *Subscriber {
	return &Subscriber{
		client: client, via: via, subscriptions: map[string]*subscription{}, nodes: map[*redis.Client]*nodeConn{},
	}
}

// Subscribe calls receive with each message on the channel. It also calls receive("") each time
// that the server has confirmed the subscription, because earlier messages were missed. If the
// channel is subscribed already, it does so at once. Subscribe and stop do not wait. A second stop
// does nothing. receive must not block. It is called from any goroutine, possibly by Subscribe
// itself, and possibly once more after stop has returned.
//
// If the server refuses or does not answer, the Subscriber tries again, less and less often, until
// stop. After the last stop, it closes its connections within moments. A connection that is being
// made ends with the client's time-outs.
func (s *Subscriber) Subscribe(channel string, receive func(message string)) (stop func()) {
	return s.subscribe(channel, &receiver{receive: receive}, nil)
}

// SubscribeNamed is Subscribe for a channel whose messages begin with a name and a space. receive
// gets what follows that, if the name is its own. If nobody has subscribed by the name of a
// message, unknown is called with it, as receive is. It is the same for all names of a channel.
func (s *Subscriber) SubscribeNamed(channel, name string, receive, unknown func(string)) (stop func()) {
	return s.subscribe(channel, &receiver{name, receive}, unknown)
}

func (s *Subscriber) subscribe(channel string, r *receiver, unknown func(name string)) (stop func()) {
	s.mu.Lock()
	sub := s.subscriptions[channel]
	if sub == nil {
		sub = &subscription{
			channel: channel, receivers: map[*receiver]struct{}{}, named: map[string]*receiver{}, unknown: unknown,
			cancel: func() {},
		}
		s.subscriptions[channel] = sub
		s.assign(sub)
	}
	sub.receivers[r] = struct{}{}
	if r.name != "" {
		sub.named[r.name] = r
	}
	live := sub.live
	s.mu.Unlock()
	if live {
		r.receive("")
	}
	return func() { s.stop(sub, r) }
}

func (s *Subscriber) stop(sub *subscription, r *receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := sub.receivers[r]; !ok {
		return
	}
	delete(sub.receivers, r)
	if sub.named[r.name] == r {
		delete(sub.named, r.name)
	}
	switch {
	case len(sub.receivers) > 0:
	case sub.expiry == nil:
		sub.expiry = time.AfterFunc(linger, func() { s.expire(sub) })
	default:
		sub.expiry.Reset(linger)
	}
}

// expire ends the subscription, unless it has got receivers again.
func (s *Subscriber) expire(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(sub.receivers) > 0 || s.subscriptions[sub.channel] != sub {
		return
	}
	delete(s.subscriptions, sub.channel)
	sub.cancel()
	if sub.node != nil {
		sub.node.remove(sub)
	}
}

// assign finds the subscription's node connection. It does so at once if that needs no request.
// s.mu must be held.
func (s *Subscriber) assign(sub *subscription) {
	if sub.refusals == 0 && s.cluster() == nil {
		s.add(sub, nil)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	sub.cancel = cancel
	go s.route(ctx, sub, sub.refusals)
}

// route adds the subscription to the connection of its node. If there were failures, it waits
// first. ctx ends with the subscription.
func (s *Subscriber) route(ctx context.Context, sub *subscription, failures int) {
	for ; ; failures++ {
		if failures > 0 && !pause(ctx, failures) {
			return
		}
		node, err := s.node(ctx, sub.channel)
		s.mu.Lock()
		if err == nil && ctx.Err() == nil {
			s.add(sub, node)
		}
		s.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// cluster returns the Cluster's client, or nil if any node will do.
func (s *Subscriber) cluster() *redis.ClusterClient {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok || s.via == ViaPlain {
		return nil // each node of a Cluster forwards PUBLISH to all others
	}
	return cluster
}

// node returns the master that has the channel, or nil if any node will do.
func (s *Subscriber) node(ctx context.Context, channel string) (*redis.Client, error) {
	cluster := s.cluster()
	if cluster == nil {
		return nil, nil
	}
	var node *redis.Client
	err := rediserr.Recovered(func() (err error) {
		node, err = cluster.MasterForKey(ctx, channel)
		return err
	})
	return node, err
}

// add adds the subscription to the connection of that node. s.mu must be held.
func (s *Subscriber) add(sub *subscription, node *redis.Client) {
	n := s.nodes[node]
	if n == nil {
		n = s.openNode(node)
	}
	n.add(sub)
}

func (s *Subscriber) move(sub *subscription, node *redis.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.node != nil && sub.node.node != node {
		sub.node.remove(sub)
		s.add(sub, node)
	}
}

// refused starts a new search for the subscription's node, after the last one has refused it.
func (s *Subscriber) refused(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.node == nil || s.subscriptions[sub.channel] != sub {
		return
	}
	sub.node.remove(sub)
	sub.refusals++
	s.assign(sub)
}

// confirmed marks the subscription as live, and wakes its receivers.
func (s *Subscriber) confirmed(sub *subscription) {
	s.mu.Lock()
	sub.refusals = 0
	sub.live = sub.node != nil
	s.mu.Unlock()
	s.deliver(sub.channel, "")
}

// deliver passes a message to all receivers of the channel, or to the one that it names.
func (s *Subscriber) deliver(channel, message string) {
	s.mu.Lock()
	sub := s.subscriptions[channel]
	if sub != nil && sub.unknown != nil && message != "" {
		name, rest, _ := strings.Cut(message, " ")
		r := sub.named[name]
		s.mu.Unlock()
		if r != nil {
			r.receive(rest)
		} else {
			sub.unknown(name)
		}
		return
	}
	var receivers []*receiver
	if sub != nil {
		receivers = slices.Collect(maps.Keys(sub.receivers))
	}
	s.mu.Unlock()
	for _, r := range receivers {
		r.receive(message)
	}
}

const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = time.Second
)

// pause sleeps before the n-th retry in a row. It sleeps for half to all of a time that doubles
// with n. It returns false if ctx ends first.
func pause(ctx context.Context, n int) bool {
	d := min(firstRetry<<min(n-1, 10), longestRetry)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
