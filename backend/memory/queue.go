package memory

import (
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Subscriber = (*Locker)(nil)

// queues are the queues of waiting claims, and their subscribers. Locker.mu guards them.
type queues struct {
	lines     map[string]*line     // by key
	listeners map[string]*listener // by ID
	calls     []func()             // to make after the mutex was unlocked
}

type listener struct{ called func(in time.Duration) }

// A line is the queue of a key's waiting claims, first come, first served.
type line struct {
	places  []place
	called  string // the claim that was notified, or ""
	at      time.Time
	watcher string // the claim that checks whether it has come, or ""
}

type place struct {
	id    string
	asked time.Time // when it last asked
	until time.Time // when it loses its position, unless it asks before
}

// Subscribe implements driver.Subscriber. Without an ID, it never notifies.
func (l *Locker) Subscribe(_, id string, called func(in time.Duration)) (stop func()) {
	if id == "" {
		return func() {}
	}
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

// unlock unlocks l.mu and makes the pending calls.
func (l *Locker) unlock() {
	calls := l.queues.calls
	l.queues.calls = nil
	l.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// tell notifies the claim of that ID, if it has a subscriber.
func (q *queues) tell(id string, in time.Duration) {
	if who := q.listeners[id]; who != nil {
		q.calls = append(q.calls, func() { who.called(in) })
	}
}

// acquireInLine is TryAcquire of a claim that respects the queue. The caller holds l.mu.
func (l *Locker) acquireInLine(c driver.Claim, now time.Time) driver.Answer {
	q := &l.queues
	w := q.line(c.Key, now)
	ahead := w.stand(c, now)
	if e := l.entry(c.Key, now); e.find(c.ID) == nil && e.admits(c) {
		if turn, left := w.turn(q, c.ID, now); turn != "" && turn != c.ID {
			return driver.Answer{State: driver.Busy, Reason: driver.OtherNotified, Left: left, Holder: turn, Ahead: w.ahead(c)}
		}
	} else if w.called == c.ID {
		w.called = "" // it has come, and another claim was first
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
	if grant.State == driver.Granted && c.MaxHolders > 1 { // the next one may share the key
		w.turn(q, "", now)
	}
	return grant
}

// leaveLine updates the queue after a release. The caller holds l.mu.
func (l *Locker) leaveLine(c driver.Claim, now time.Time) {
	q := &l.queues
	w := q.line(c.Key, now)
	w.leave(c.ID)
	e := l.entry(c.Key, now)
	switch {
	case e.isShared():
		w.turn(q, "", now)
	case e.find(c.ID) != nil: // and all waiters are notified of what it has left
		for _, p := range w.places {
			q.tell(p.id, 0)
		}
	}
}

// line returns the queue of the key. It also removes a few queues whose claims have all expired,
// so that their number is bounded.
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

// forget removes claims that have not asked for too long.
func (w *line) forget(now time.Time) {
	w.places = slices.DeleteFunc(w.places, func(p place) bool { return !now.Before(p.until) })
}

// stand keeps the position of c, or appends c, if it is queued. It returns how many claims are
// ahead of c.
func (w *line) stand(c driver.Claim, now time.Time) (ahead int) {
	ahead = w.ahead(c)
	switch p := (place{c.ID, now, now.Add(c.TTL)}); {
	case c.Queue != driver.Queued:
	case ahead < len(w.places):
		w.places[ahead] = p
	default:
		w.places = append(w.places, p)
	}
	return ahead
}

// ahead returns how many claims are ahead of c.
func (w *line) ahead(c driver.Claim) int {
	if i := slices.IndexFunc(w.places, func(p place) bool { return p.id == c.ID }); i >= 0 {
		return i
	}
	return len(w.places)
}

// turn returns the claim that may take the key, which is free, and for how long. It is "" if there
// is none. turn notifies the claim, unless it is the one that asks. It removes claims of which
// nobody is left: they have no subscriber, and have not asked for long.
func (w *line) turn(q *queues, asker string, now time.Time) (id string, left time.Duration) {
	for len(w.places) > 0 {
		id = w.places[0].id
		waited := now.Sub(w.at)
		switch {
		case id == asker:
			return id, 0
		case q.listeners[id] == nil && now.Sub(w.places[0].asked) >= driver.NotifyGrace:
			// its caller has gone
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

// call notifies the first claim, and lets the next subscriber check whether that claim comes.
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

// leave removes a claim from the queue.
func (w *line) leave(id string) {
	w.places = slices.DeleteFunc(w.places, func(p place) bool { return p.id == id })
	if w.called == id {
		w.called = ""
	}
}
