package memory

import (
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Subscriber = (*Locker)(nil)

// queues are the queues of all keys, and the subscribers of their waiters. Locker.mu guards them.
type queues struct {
	byKey       map[string]*queue
	subscribers map[string]*subscriber // by ID
	calls       []func()               // to make after the mutex was unlocked
}

type subscriber struct{ notify func(in time.Duration) }

// A queue has the waiting claims of a key: first come, first served.
type queue struct {
	waiters    []waiter
	notified   string // the claim that was notified, or ""
	notifiedAt time.Time
	watcher    string // the claim that checks whether the notified one has come, or ""
}

type waiter struct {
	id    string
	asked time.Time // when it last asked
	until time.Time // when it loses its position, unless it asks before
}

// Subscribe implements driver.Subscriber. Without an ID, it never notifies.
func (l *Locker) Subscribe(_, id string, notify func(in time.Duration)) (stop func()) {
	if id == "" {
		return func() {}
	}
	me := &subscriber{notify}
	l.mu.Lock()
	l.queues.subscribers[id] = me
	l.mu.Unlock()
	notify(0)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.queues.subscribers[id] == me {
			delete(l.queues.subscribers, id)
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

func (qs *queues) notify(id string, in time.Duration) {
	if s := qs.subscribers[id]; s != nil {
		qs.calls = append(qs.calls, func() { s.notify(in) })
	}
}

// acquireQueued makes a claim that respects the queue. The caller holds l.mu.
func (l *Locker) acquireQueued(e *entry, c driver.Claim, now time.Time) driver.Answer {
	qs := &l.queues
	q := qs.of(c.Key, now)
	ahead := q.enqueue(c, now)
	if e.Find(c.ID) == nil && !e.Done && e.Admits(c) {
		if first, left := q.next(qs, c.ID, now); first != "" && first != c.ID {
			return driver.Answer{State: driver.Busy, Reason: driver.OtherNotified, Left: left, Holder: first, Ahead: q.ahead(c)}
		}
	} else if q.notified == c.ID {
		q.notified = "" // it has come, and another claim was faster
	}
	answer := l.acquire(e, c, now)
	if answer.State == driver.Busy {
		answer.Ahead = ahead
		return answer
	}
	q.remove(c.ID)
	if answer.State == driver.Granted && q.watcher != "" {
		qs.notify(q.watcher, -1)
		q.watcher = ""
	}
	if answer.State == driver.Granted && c.MaxHolders > 1 { // the next one may share the key
		q.next(qs, "", now)
	}
	return answer
}

// leaveQueue updates the queue after a release. The caller holds l.mu.
func (l *Locker) leaveQueue(e *entry, c driver.Claim, now time.Time) {
	qs := &l.queues
	q := qs.of(c.Key, now)
	q.remove(c.ID)
	switch {
	case e.IsShared():
		q.next(qs, "", now)
	case e.Find(c.ID) != nil: // all waiters are notified of what it has left
		for _, w := range q.waiters {
			qs.notify(w.id, 0)
		}
	}
}

// of returns the queue of the key. It also removes a few queues whose claims have all expired, so
// that their number is bounded.
func (qs *queues) of(key string, now time.Time) *queue {
	checked := 0
	for other, q := range qs.byKey {
		if q.expire(now); len(q.waiters) == 0 {
			delete(qs.byKey, other)
		}
		if checked++; checked == 3 {
			break
		}
	}
	q := qs.byKey[key]
	if q == nil {
		q = &queue{}
		qs.byKey[key] = q
	}
	q.expire(now)
	return q
}

func (q *queue) expire(now time.Time) {
	q.waiters = slices.DeleteFunc(q.waiters, func(w waiter) bool { return !now.Before(w.until) })
}

// enqueue appends c if it is Queued, or keeps its position. It returns how many claims are ahead of
// c.
func (q *queue) enqueue(c driver.Claim, now time.Time) (ahead int) {
	ahead = q.ahead(c)
	switch w := (waiter{c.ID, now, now.Add(c.TTL)}); {
	case c.Queue != driver.Queued:
	case ahead < len(q.waiters):
		q.waiters[ahead] = w
	default:
		q.waiters = append(q.waiters, w)
	}
	return ahead
}

func (q *queue) ahead(c driver.Claim) int {
	if i := slices.IndexFunc(q.waiters, func(w waiter) bool { return w.id == c.ID }); i >= 0 {
		return i
	}
	return len(q.waiters)
}

// next returns the claim that may take the key, which is free, and for how long it may. The ID is
// "" if there is none. next notifies the claim, unless it is the asker. It removes claims whose
// caller has gone: they have no subscriber, and have not asked for NotifyGrace.
func (q *queue) next(qs *queues, asker string, now time.Time) (id string, left time.Duration) {
	for len(q.waiters) > 0 {
		id = q.waiters[0].id
		waited := now.Sub(q.notifiedAt)
		switch {
		case id == asker:
			return id, 0
		case qs.subscribers[id] == nil && now.Sub(q.waiters[0].asked) >= driver.NotifyGrace:
			// its caller has gone
		case id != q.notified:
			q.notifyFirst(qs, now)
			return id, driver.NotifyGrace
		case waited < driver.NotifyGrace:
			return id, driver.NotifyGrace - waited
		}
		q.remove(id)
	}
	return "", 0
}

// notifyFirst notifies the first claim. The next subscriber checks whether that claim comes.
func (q *queue) notifyFirst(qs *queues, now time.Time) {
	first := q.waiters[0].id
	q.notified, q.notifiedAt, q.watcher = first, now, ""
	qs.notify(first, 0)
	for _, w := range q.waiters[1:] {
		if qs.subscribers[w.id] != nil {
			q.watcher = w.id
			qs.notify(w.id, driver.NotifyGrace)
			return
		}
	}
}

func (q *queue) remove(id string) {
	q.waiters = slices.DeleteFunc(q.waiters, func(w waiter) bool { return w.id == id })
	if q.notified == id {
		q.notified = ""
	}
}
