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
func (qs *Queues[C]) Granted(now time.Duration, p ID, w *Local[C], h Holder, took time.Duration, shared bool) {
	var q *queue[C]
	if w != nil && w.queue != nil {
		q = w.queue
		q.remove(w)
		qs.trip.note(took)
	} else {
		q = qs.byID[p]
	}
	if q == nil {
		return
	}
	q.had, q.missed = true, 0
	if p.Owner != "" || shared {
		q.nextRequestAt = now
		q.wakeHead()
		qs.drop(q)
		return
	}
	q.holder = h
	q.polls, q.failures, q.err = 0, 0, nil
	q.notice = min(q.notice, noticed)
	q.wakeOverdue()
}

// Successor returns the waiter to which the lease h may be handed off, or nil. It has the same
// terms. The lease may be one of several that hold the key, as the terms say. The first waiter may
// then be asking the store, and the next one is the successor.
func (qs *Queues[C]) Successor(key string, h Holder, t Terms) *Local[C] {
	q := qs.byID[ID{Key: key}]
	if q == nil || t.MaxHolders <= 1 && (q.holder != h || q.requester != nil) {
		return nil
	}
	w := q.head()
	if w != nil && w == q.requester {
		w = w.after
	}
	if w != nil && w.state != localInWaitHook && w.terms == t {
		return w
	}
	return nil
}

// held returns the queue of the key if h is its holder.
func (qs *Queues[C]) held(key string, h Holder) *queue[C] {
	if q := qs.byID[ID{Key: key}]; q != nil && q.holder == h {
		return q
	}
	return nil
}

// Waits reports whether calls wait in the queue.
func (qs *Queues[C]) Waits(p ID) bool {
	q := qs.byID[p]
	return q != nil && q.first != nil
}

// First returns the first waiter of the queue, or nil. It is nil, too, while that one is asking
// the store.
func (qs *Queues[C]) First(p ID) *Local[C] {
	if q := qs.byID[p]; q != nil && q.requester == nil {
		return q.head()
	}
	return nil
}

// Offer offers w a lease that is not the only one on the key. w leaves the queue, and its next
// step is Take.
func (qs *Queues[C]) Offer(w *Local[C]) {
	q := w.queue
	w.offer()
	qs.drop(q)
}

// HandOff makes h, a lease that follows the holder's, the holder, and offers it to w. w leaves the
// queue, and its next step is Take.
func (qs *Queues[C]) HandOff(w *Local[C], h Holder) {
	if w.terms.MaxHolders > 1 {
		qs.Offer(w)
		return
	}
	w.queue.holder = h
	w.offer()
}

// Releasing notes that the release of h begins. Nobody asks until Released, or until a
// notification.
func (qs *Queues[C]) Releasing(now time.Duration, key string, h Holder) {
	if q := qs.held(key, h); q != nil {
		q.clearHolder(now, clock.Never)
		qs.drop(q)
	}
}

// Lost notes that h is not valid any more. The head asks for itself.
func (qs *Queues[C]) Lost(now time.Duration, key string, h Holder) {
	if q := qs.held(key, h); q != nil {
		q.clearHolder(now, now)
		q.wakeHead()
		qs.drop(q)
	}
}

// clearHolder removes the holder. It keeps the holder's last known label and end for the waiters.
// The head does not ask before nextRequestAt.
func (q *queue[C]) clearHolder(now, nextRequestAt time.Duration) {
	if q.first != nil {
		last := q.busy(now)
		q.answer, q.answered, q.answeredAt = &last, true, now
	}
	q.holder, q.nextRequestAt, q.laterAt = nil, nextRequestAt, clock.Never
}

// Released notes that the store has answered a release of the key that began at an instant and
// took some time: the key may be free.
func (qs *Queues[C]) Released(now time.Duration, key string, began, took time.Duration) {
	q := qs.byID[ID{Key: key}]
	if q == nil {
		return
	}
	switch {
	case q.holder != nil, q.requestedAt > began:
		// a lease holds it already, or the head has asked since
	case q.requester != nil:
		q.notice = noticedRequest
	default:
		qs.trip.note(took)
		q.polls, q.missed = 0, 0
		q.notify(now)
	}
	qs.drop(q)
}
