package redistest

import (
	"sync"
	"time"
)

type direction int

const (
	requests direction = iota
	replies
)

// verdict is what the gate does with a message.
type verdict int

const (
	deliver verdict = iota
	swallow         // forget the message
	cut             // forget the message and reset the connection
	closed          // the connection has ended meanwhile
)

// gate holds the faults of a proxy and makes messages wait for them.
type gate struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a fault changes
	faults  faults
	dropped int
}

type faults struct {
	dark       [2]bool
	delay      [2]time.Duration
	hold       bool
	holdTo     map[string]bool
	drop       int
	dropTo     map[string]int
	dropPushes int
}

func noFaults() faults {
	return faults{holdTo: map[string]bool{}, dropTo: map[string]int{}}
}

func newGate() *gate {
	return &gate{changed: make(chan struct{}), faults: noFaults()}
}

// change makes a change to the faults and wakes all waiters.
func (g *gate) change(to func(f *faults)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	to(&g.faults)
	close(g.changed)
	g.changed = make(chan struct{})
}

// pass waits while a fault delays the message, and then returns what to do with it.
func (g *gate) pass(d direction, m message, ended <-chan struct{}) verdict {
	for {
		g.mu.Lock()
		held, rest := g.faults.holds(d, m)
		if !held && rest <= 0 {
			v := g.faults.judge(d, m)
			if v != deliver {
				g.dropped++
			}
			g.mu.Unlock()
			return v
		}
		changed := g.changed
		g.mu.Unlock()
		var due <-chan time.Time
		if !held {
			due = time.After(rest)
		}
		select {
		case <-ended:
			return closed
		case <-changed:
		case <-due:
		}
	}
}

// holds tells whether the message waits for a change, and if not, how long it is still delayed.
func (f *faults) holds(d direction, m message) (held bool, rest time.Duration) {
	if f.dark[d] {
		return true, 0
	}
	if d == replies && (f.hold || !m.push && f.holdTo[m.name]) {
		return true, 0
	}
	return false, f.delay[d] - time.Since(m.came)
}

// judge decides on a message that waits no longer, and counts the drops.
func (f *faults) judge(d direction, m message) verdict {
	switch {
	case d == requests:
	case m.push:
		if f.dropPushes > 0 && isMessage(m.name) {
			f.dropPushes--
			return swallow
		}
	case f.dropTo[m.name] > 0:
		f.dropTo[m.name]--
		return cut
	case f.drop > 0:
		f.drop--
		return cut
	}
	return deliver
}
