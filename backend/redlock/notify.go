package redlock

import (
	"math"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Subscriber = (*Locker)(nil)

// fresh is the time within which notifications of several nodes count as one event.
const fresh = time.Second

// Subscribe implements driver.Subscriber. It subscribes to all nodes that are Subscribers, and
// notifies when a majority has notified that the key may be free. Fewer nodes notify when a refused
// claim is released on nodes that the holder lacks. A waiter that asked again then would do so for
// ever.
func (l *Locker) Subscribe(key, _ string, notify func(in time.Duration)) (stop func()) {
	e := &notifications{quorum: l.quorum}
	// The next notification takes the place of one that is delayed: the release that this was about
	// may not be the last.
	delayed := time.AfterFunc(math.MaxInt64, func() { notify(0) })
	stops := []func(){l.contention.wait(key)}
	for _, n := range l.nodes {
		if subscriber, ok := n.Locker.(driver.Subscriber); ok {
			stops = append(stops, subscriber.Subscribe(key, "", func(time.Duration) {
				if e.completes(n) {
					delayed.Reset(l.contention.released(key))
				}
			}))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		delayed.Stop()
	}
}

// notifications are the nodes that have notified.
type notifications struct {
	quorum int

	mu    sync.Mutex
	since time.Time // when the first node did
	nodes map[*node]bool
}

// completes adds a node, and reports whether it makes a majority.
func (e *notifications) completes(n *node) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.nodes == nil || now.Sub(e.since) > fresh {
		e.since, e.nodes = now, map[*node]bool{}
	}
	e.nodes[n] = true
	enough := len(e.nodes) >= e.quorum
	if enough {
		e.nodes = nil
	}
	return enough
}
