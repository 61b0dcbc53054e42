package redlock

import (
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Notifier = (*Locker)(nil)

// fresh is within which time nodes have to say that a key may be free to mean the same event.
const fresh = time.Second

// Notify implements driver.Notifier: it listens to all nodes that are one, and wakes when a
// majority has said that the key may be free. Fewer say so when a claim that was refused is given
// back to the nodes that the holder does not have: to ask again for that would be to do so for
// ever.
func (l *Locker) Subscribe(key string, wake func()) (stop func()) {
	e := &ear{quorum: l.quorum, wake: wake, said: make([]bool, len(l.nodes))}
	var stops []func()
	for _, n := range l.nodes {
		if notifier, ok := driver.Ability[driver.Notifier](n.Locker); ok {
			stops = append(stops, notifier.Subscribe(key, func() { e.hear(n.index) }))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// An ear counts the nodes that say something.
type ear struct {
	quorum int
	wake   func()

	mu    sync.Mutex
	since time.Time // when the first one did
	said  []bool    // by node
	count int
}

func (e *ear) hear(node int) {
	e.mu.Lock()
	if now := time.Now(); now.Sub(e.since) > fresh {
		e.since = now
		e.forget()
	}
	if !e.said[node] {
		e.said[node] = true
		e.count++
	}
	enough := e.count >= e.quorum
	if enough {
		e.forget()
	}
	e.mu.Unlock()
	if enough {
		e.wake()
	}
}

func (e *ear) forget() {
	clear(e.said)
	e.count = 0
}
