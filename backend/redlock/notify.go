package redlock

import (
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
	e := &notifications{quorum: l.quorum, wake: func() { notify(0) }, said: make([]bool, len(l.nodes))}
	var stops []func()
	for _, n := range l.nodes {
		if subscriber, ok := n.Locker.(driver.Subscriber); ok {
			stops = append(stops, subscriber.Subscribe(key, "", func(time.Duration) { e.add(n.index) }))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// notifications counts the nodes that have notified.
type notifications struct {
	quorum int
	wake   func()

	mu    sync.Mutex
	since time.Time // when the first node did
	said  []bool    // by node
	count int
}

func (e *notifications) add(node int) {
	e.mu.Lock()
	if now := time.Now(); now.Sub(e.since) > fresh {
		e.since = now
		e.reset()
	}
	if !e.said[node] {
		e.said[node] = true
		e.count++
	}
	enough := e.count >= e.quorum
	if enough {
		e.reset()
	}
	e.mu.Unlock()
	if enough {
		e.wake()
	}
}

func (e *notifications) reset() {
	clear(e.said)
	e.count = 0
}
