package queue

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

// This file is what happens to the leases of a process: they are granted, handed off or shared,
// released and lost.

// Granted notes that the store has granted the key to a call of this process: to w, or to one that
// is in no queue if w is nil. A lease that several calls may share, of an owner or of any, is not
// noted as a holder: the next waiter may be granted the key as well.
func (qs *Queues) Granted(now time.Duration, p ID, w *Local, h Holder, took time.Duration, shared bool) {
	var q *queue
	if w != nil && w.queue != nil {
		q = w.queue
		q.remove(w)
		qs.trip.note(took)
	} else if len(qs.byID) > 0 {
		q = qs.byID[p]
	}
	if q == nil {
		return
	}
	q.had, q.missed = true, 0
	qs.rivals.granted(p.Key)
	if p.Owner != "" || shared {
		q.askAt = now
		q.wakeHead()
		qs.drop(q)
		return
	}
	q.holder = h
	q.polls, q.failures, q.releases, q.err, q.again = 0, 0, 0, nil, false
	q.wakeOverdue()
}

// Successor returns the waiter to which the lease h may be handed off, or nil. It has the same
// terms. The lease may be one of several that hold the key, as the terms say. The first waiter may
// then be asking the store, and the next one is the successor.
func (qs *Queues) Successor(key string, h Holder, t Terms) *Local {
	if t.Among > 1 {
		return qs.successorOfMany(key, t)
	}
	q := qs.held(key, h)
	if q == nil || q.asking != nil {
		return nil
	}
	if w := q.head(); w != nil && w.terms == t {
		return w
	}
	return nil
}

func (qs *Queues) successorOfMany(key string, t Terms) *Local {
	q := qs.byID[ID{Key: key}]
	if q == nil {
		return nil
	}
	w := q.head()
	if w != nil && q.asking == w {
		w = w.after
	}
	if w != nil && !w.announcing && w.terms == t {
		return w
	}
	return nil
}

// held returns the queue of the key if h is its holder.
func (qs *Queues) held(key string, h Holder) *queue {
	if len(qs.byID) == 0 {
		return nil
	}
	if q := qs.byID[ID{Key: key}]; q != nil && q.holder == h {
		return q
	}
	return nil
}

// Waits reports whether calls wait in the queue.
func (qs *Queues) Waits(p ID) bool {
	q := qs.byID[p]
	return q != nil && q.first != nil
}

// First returns the first waiter of the queue, or nil. It is nil, too, while that one is asking the
// store.
func (qs *Queues) First(p ID) *Local {
	if q := qs.byID[p]; q != nil && q.asking == nil {
		return q.head()
	}
	return nil
}

// Offer gives w a lease that is not the only one on the key. w leaves the queue, and its next step
// is Take.
func (qs *Queues) Offer(w *Local, h Holder) {
	q := w.queue
	q.remove(w)
	w.offered = h
	w.signal()
	qs.drop(q)
}

// HandOff makes h, a lease that follows the holder's, the holder, and gives it to w, which leaves
// the queue. w's next step is Take.
func (qs *Queues) HandOff(w *Local, h Holder) {
	if w.terms.Among > 1 {
		qs.Offer(w, h)
		return
	}
	q := w.queue
	q.remove(w)
	q.holder = h
	w.offered = h
	w.signal()
}

// Releasing notes that the release of h begins. Nobody asks until Released, or until a
// notification.
func (qs *Queues) Releasing(now time.Duration, key string, h Holder) {
	if q := qs.held(key, h); q != nil {
		q.unhold(now, clock.Never)
		qs.drop(q)
	}
}

// Lost notes that h is not valid any more. The head asks for itself.
func (qs *Queues) Lost(now time.Duration, key string, h Holder) {
	if q := qs.held(key, h); q != nil {
		q.unhold(now, now)
		q.wakeHead()
		qs.drop(q)
	}
}

// unhold forgets the holder, of which those that wait know what was known at the end. The head does
// not ask before askAt.
func (q *queue) unhold(now, askAt time.Duration) {
	if q.first != nil {
		last := q.busy(now)
		q.answer, q.answered, q.answeredAt = &last, true, now
	}
	q.holder, q.askAt = nil, askAt
}

// Released notes that the store has answered a release of the key that began at an instant and
// took some time: the key may be free.
func (qs *Queues) Released(now time.Duration, key string, began, took time.Duration) {
	if len(qs.byID) == 0 {
		return
	}
	q := qs.byID[ID{Key: key}]
	if q == nil {
		return
	}
	switch {
	case q.holder != nil, q.askedAt > began:
		// a lease holds it already, or the head has asked since
	case q.asking != nil:
		q.again = true
	default:
		qs.trip.note(took)
		q.polls, q.missed = 0, 0
		q.notify(now)
	}
	qs.drop(q)
}
