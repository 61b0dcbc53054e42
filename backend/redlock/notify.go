package redlock

import (
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Notifier = (*Locker)(nil)

// fresh is the time within which notifications of several nodes count as one event.
const fresh = time.Second

// Subscribe implements driver.Notifier. It subscribes to all nodes that are Notifiers, and calls
// wake when a majority has notified that the key may be free. Fewer nodes notify when a refused
// claim is released on nodes that the holder lacks. A waiter that asked again then would do so for
// ever.
func (l *Locker) Subscribe(key string, wake func()) (stop func()) {
	e := &notifications{quorum: l.quorum, wake: wake, said: make([]bool, len(l.nodes))}
	var stops []func()
	for _, n := range l.nodes {
		if notifier, ok := driver.Ability[driver.Notifier](n.Locker); ok {
			stops = append(stops, notifier.Subscribe(key, func() { e.add(n.index) }))
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
