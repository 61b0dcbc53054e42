package memory

import (
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Queuer = (*Locker)(nil)

// queues are the lines of those who wait for keys, and who wants to be told when it is his turn.
// Locker.mu guards them.
type queues struct {
	lines     map[string]*line     // by key
	listeners map[string]*listener // by ID
	calls     []func()             // to be made when the lock is free
}

type listener struct{ called func(in time.Duration) }

// A line is those who wait for a key, in the order in which they came.
type line struct {
	places  []place
	called  string // whose turn it is, or ""
	at      time.Time
	watcher string // who sees to it that he comes, or ""
}

type place struct {
	id    string
	until time.Time // unless it is heard of before
}

// Queue implements driver.Queuer.
func (l *Locker) SubscribeClaim(_, id string, called func(in time.Duration)) (stop func()) {
	me := &listener{called}
	l.mu.Lock()
	l.queues.listeners[id] = me
	l.mu.Unlock()
	called(0)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.queues.listeners[id] == me {
			delete(l.queues.listeners, id)
		}
	}
}

// unlock unlocks l.mu and makes the calls that have come up.
func (l *Locker) unlock() {
	calls := l.queues.calls
	l.queues.calls = nil
	l.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// tell calls who waits by that ID, if he listens.
func (q *queues) tell(id string, in time.Duration) {
	if who := q.listeners[id]; who != nil {
		q.calls = append(q.calls, func() { who.called(in) })
	}
}

// acquireInLine is TryAcquire of a claim that sees the line. l.mu must be held.
func (l *Locker) acquireInLine(c driver.Claim, now time.Time) driver.Grant {
	q := &l.queues
	w := q.line(c.Key, now)
	ahead := w.stand(c, now)
	if l.keys[c.Key] == nil {
		if turn, left := w.turn(q, c.ID, now); turn != "" && turn != c.ID {
			return driver.Grant{State: driver.Busy, Left: left, Holder: turn, Ahead: w.ahead(c), Notified: true}
		}
	} else if w.called == c.ID {
		w.called = "" // he has come, and somebody else was first
	}
	grant := l.acquire(c, now)
	if grant.State == driver.Busy {
		grant.Ahead = ahead
		return grant
	}
	w.leave(c.ID)
	if grant.State == driver.Granted && w.watcher != "" {
		q.tell(w.watcher, -1)
		w.watcher = ""
	}
	return grant
}

// leaveLine is what a release does with the line. l.mu must be held.
func (l *Locker) leaveLine(c driver.Claim, now time.Time) {
	q := &l.queues
	w := q.line(c.Key, now)
	w.leave(c.ID)
	e := l.keys[c.Key]
	switch {
	case e == nil:
		w.turn(q, "", now)
	case e.id == c.ID: // and all who wait are to know what it has left
		for _, p := range w.places {
			q.tell(p.id, 0)
		}
	}
}

// line returns the key's line. Lines of which nobody was heard any more are forgotten, a few at a
// time, so that there is no end of them.
func (q *queues) line(key string, now time.Time) *line {
	looked := 0
	for other, w := range q.lines {
		if w.forget(now); len(w.places) == 0 {
			delete(q.lines, other)
		}
		if looked++; looked == 3 {
			break
		}
	}
	w := q.lines[key]
	if w == nil {
		w = &line{}
		q.lines[key] = w
	}
	w.forget(now)
	return w
}

// forget drops the places of which nothing was heard for too long.
func (w *line) forget(now time.Time) {
	w.places = slices.DeleteFunc(w.places, func(p place) bool { return !now.Before(p.until) })
}

// stand keeps c's place, or takes one at the end, if c is queued, and returns how many stand
// before it.
func (w *line) stand(c driver.Claim, now time.Time) (ahead int) {
	ahead = w.ahead(c)
	switch p := (place{c.ID, now.Add(c.TTL)}); {
	case c.Queue != driver.Queued:
	case ahead < len(w.places):
		w.places[ahead] = p
	default:
		w.places = append(w.places, p)
	}
	return ahead
}

// ahead returns how many stand before c.
func (w *line) ahead(c driver.Claim) int {
	if i := slices.IndexFunc(w.places, func(p place) bool { return p.id == c.ID }); i >= 0 {
		return i
	}
	return len(w.places)
}

// turn returns whose turn it is to take the key, which is free, if anybody's, and for how long it
// is that yet. Unless it is the asker, he is called.
func (w *line) turn(q *queues, asker string, now time.Time) (id string, left time.Duration) {
	for len(w.places) > 0 {
		id = w.places[0].id
		waited := now.Sub(w.at)
		switch {
		case id == asker:
			return id, 0
		case id != w.called:
			w.call(q, id, now)
			return id, driver.NotifyGrace
		case waited < driver.NotifyGrace:
			return id, driver.NotifyGrace - waited
		}
		w.leave(id)
	}
	return "", 0
}

// call calls the first, and has the next who listens see to it that he comes.
func (w *line) call(q *queues, id string, now time.Time) {
	w.called, w.at, w.watcher = id, now, ""
	q.tell(id, 0)
	for _, p := range w.places[1:] {
		if q.listeners[p.id] != nil {
			w.watcher = p.id
			q.tell(p.id, driver.NotifyGrace)
			return
		}
	}
}

// leave gives up a place.
func (w *line) leave(id string) {
	w.places = slices.DeleteFunc(w.places, func(p place) bool { return p.id == id })
	if w.called == id {
		w.called = ""
	}
}
