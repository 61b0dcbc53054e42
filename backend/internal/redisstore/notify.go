package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Via says by which command something is published, and so how to listen for it.
type Via uint8

// How something is published.
const (
	// ViaPlain is PUBLISH.
	ViaPlain Via = iota
	// ViaSharded is SPUBLISH, and PUBLISH on a server that does not know it: Redis before 7.
	ViaSharded
	// ViaBoth is both.
	ViaBoth
)

// Notices tells who waits that something was published on a channel. It has one connection for all
// channels, or, on a Cluster and unless all is plain, one to each master that has one of them, and
// none while nobody listens. It is safe for concurrent use.
//
// A notice can be lost: who waits looks for himself now and then.
type Notices struct {
	store *Store
	via   Via

	mu     sync.Mutex
	topics map[string]*topic       // by channel
	lines  map[*redis.Client]*line // by node, or nil where any will do
}

// A topic is a channel to which somebody listens. Notices.mu guards it.
type topic struct {
	channel  string
	waiters  map[*waiter]struct{}
	line     *line // on which it is, or nil while it looks for its node
	live     bool  // the server has confirmed that we listen
	refusals int   // in a row
	leave    context.CancelFunc
}

type waiter struct{ hear func(message string) }

// Notices returns what tells of things that are published that way.
func (s *Store) Notices(via Via) *Notices {
	return &Notices{store: s, via: via, topics: map[string]*topic{}, lines: map[*redis.Client]*line{}}
}

// Listen calls wake for each message on the channel, and each time that the server has confirmed
// that we listen: what was said before that was not heard. It returns at once, as does stop; a
// second stop does nothing. wake must not block. It is called from any goroutine, also from Listen
// itself, and once more after stop at most.
//
// A server that refuses or does not answer is asked again, less and less often, until stop. When
// the last has stopped, the connections are closed after a moment; one that is being made ends
// with the client's time-outs.
func (n *Notices) Listen(channel string, wake func()) (stop func()) {
	return n.Hear(channel, func(string) { wake() })
}

// Hear is Listen for one who wants to know what was said: hear is called with the message, or ""
// each time that we begin to listen.
func (n *Notices) Hear(channel string, hear func(message string)) (stop func()) {
	w := &waiter{hear: hear}
	n.mu.Lock()
	t := n.topics[channel]
	if t == nil {
		t = &topic{channel: channel, waiters: map[*waiter]struct{}{}, leave: func() {}}
		n.topics[channel] = t
		n.place(t)
	}
	t.waiters[w] = struct{}{}
	live := t.live
	n.mu.Unlock()
	if live {
		hear("")
	}
	return func() { n.stop(t, w) }
}

func (n *Notices) stop(t *topic, w *waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(t.waiters, w)
	if len(t.waiters) > 0 || n.topics[t.channel] != t {
		return
	}
	delete(n.topics, t.channel)
	t.leave()
	if t.line != nil {
		t.line.remove(t)
	}
}

// place finds the topic's line, at once if it needs no asking. n.mu must be held.
func (n *Notices) place(t *topic) {
	if t.refusals == 0 && n.cluster() == nil {
		n.put(t, nil)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.leave = cancel
	go n.route(ctx, t, t.refusals)
}

// route puts the topic on the line to its node, after a pause if it was refused before. ctx ends
// when nobody listens to it any more.
func (n *Notices) route(ctx context.Context, t *topic, failures int) {
	for ; ; failures++ {
		if failures > 0 && !pause(ctx, failures) {
			return
		}
		node, err := n.node(ctx, t.channel)
		n.mu.Lock()
		if err == nil && ctx.Err() == nil {
			n.put(t, node)
		}
		n.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// cluster returns the client if it matters to which node of a Cluster we listen.
func (n *Notices) cluster() *redis.ClusterClient {
	cluster, ok := n.store.client.(*redis.ClusterClient)
	if !ok || n.via == ViaPlain {
		return nil // every node of a Cluster tells what was published on another
	}
	return cluster
}

// node returns the master that has the channel, or nil where any node will do.
func (n *Notices) node(ctx context.Context, channel string) (*redis.Client, error) {
	cluster := n.cluster()
	if cluster == nil {
		return nil, nil
	}
	return cluster.MasterForKey(ctx, channel)
}

// put puts the topic on the line to that node. n.mu must be held.
func (n *Notices) put(t *topic, node *redis.Client) {
	l := n.lines[node]
	if l == nil {
		l = n.openLine(node)
	}
	l.add(t)
}

// move puts the topic on the line to that node if it is on another.
func (n *Notices) move(t *topic, node *redis.Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.line != nil && t.line.node != node {
		t.line.remove(t)
		n.put(t, node)
	}
}

// refuse has the topic look for its node again, as the one of its line does not let us listen.
func (n *Notices) refuse(t *topic) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.line == nil || n.topics[t.channel] != t {
		return
	}
	t.line.remove(t)
	t.refusals++
	n.place(t)
}

// confirm notes that the server lets us listen to the topic, and wakes those who wait.
func (n *Notices) confirm(t *topic) {
	n.mu.Lock()
	t.refusals = 0
	t.live = t.line != nil
	n.mu.Unlock()
	n.tell(t.channel, "")
}

// tell tells all who listen to the channel what was said there.
func (n *Notices) tell(channel, message string) {
	n.mu.Lock()
	var hears []func(string)
	if t := n.topics[channel]; t != nil {
		for w := range t.waiters {
			hears = append(hears, w.hear)
		}
	}
	n.mu.Unlock()
	for _, hear := range hears {
		hear(message)
	}
}

const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = time.Second
)

// pause sleeps before the n-th retry in a row, half to all of a time that doubles, and returns
// false if ctx ends.
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
