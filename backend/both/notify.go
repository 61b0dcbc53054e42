package both

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Subscribe implements driver.Subscriber. It subscribes on both sides, and notifies for the side
// that has refused the last claim of the key. If a backend does not notify, neither does the
// Locker, so that waiters poll.
//
// The other side notifies of what does not matter: a claim that the next side has refused is
// released on the old one. If that woke waiters, each of them would ask and do the same, and they
// would wake each other for as long as the next side is busy.
func (l *Locker) Subscribe(key, _ string, notify func(in time.Duration)) (stop func()) {
	var subscribers [2]driver.Subscriber
	for i, s := range l.sides {
		n, ok := s.Locker.(driver.Subscriber)
		if !ok || driver.Describe(s.Locker).Polls {
			return func() {}
		}
		subscribers[i] = n
	}
	g := &gate{wake: func() { notify(0) }, passes: anySide}
	l.gates.add(key, g)
	var stops [2]func()
	for i, n := range subscribers {
		stops[i] = n.Subscribe(key, "", func(time.Duration) { g.notified(i) })
	}
	return sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
		l.gates.remove(key, g)
	})
}

// anySide, as gate.passes, lets the notifications of both sides pass.
const anySide = -1

// A gate passes on the notifications that matter to one subscriber.
type gate struct {
	wake func()

	mu     sync.Mutex
	begun  [2]bool // the subscriptions on the sides
	asks   int     // claims of the key that have no answer yet
	held   [2]bool // sides that have notified while asks > 0
	passes int     // the side whose notifications pass, or anySide
}

// notified handles a notification of a side. While a claim has no answer, it is not known which
// side matters.
func (g *gate) notified(at int) {
	g.mu.Lock()
	first := !g.begun[at]
	g.begun[at] = true
	var passes bool
	switch {
	case !g.begun[old] || !g.begun[next]:
		// Waiters poll until both sides notify.
	case first:
		passes = true
	case g.asks > 0:
		g.held[at] = true
	default:
		passes = g.passes == anySide || g.passes == at
	}
	g.mu.Unlock()
	if passes {
		g.wake()
	}
}

// answered handles the answer to a claim, which was refused by a side if refused is true.
func (g *gate) answered(refused bool, by int) {
	g.mu.Lock()
	g.asks--
	passes := g.held[old] || g.held[next]
	g.passes = anySide
	if refused {
		passes = g.held[by]
		if g.asks == 0 {
			g.passes = by
		}
	}
	if g.asks == 0 || passes {
		g.held = [2]bool{}
	}
	g.mu.Unlock()
	if passes {
		g.wake()
	}
}

// gates are those of all keys that have subscribers. The zero value has none.
type gates struct {
	mu    sync.Mutex
	byKey map[string][]*gate
}

func (gs *gates) add(key string, g *gate) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.byKey == nil {
		gs.byKey = map[string][]*gate{}
	}
	gs.byKey[key] = append(slices.Clip(gs.byKey[key]), g) // ask may use the slice
}

func (gs *gates) remove(key string, g *gate) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(gs.byKey[key]), func(other *gate) bool { return other == g })
	if len(left) == 0 {
		delete(gs.byKey, key)
		return
	}
	gs.byKey[key] = left
}

// An asking is a claim that has no answer yet, as the gates of its key know it.
type asking []*gate

func (gs *gates) ask(key string) asking {
	gs.mu.Lock()
	of := gs.byKey[key]
	gs.mu.Unlock()
	for _, g := range of {
		g.mu.Lock()
		g.asks++
		g.mu.Unlock()
	}
	return of
}

func (a asking) answered(refused bool, by int) {
	for _, g := range a {
		g.answered(refused, by)
	}
}
