package queue

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
)

// yieldRounds is how many holders of other processes a process lets pass at least, after it has
// had the key, before it asks as soon as the key may be free.
const yieldRounds = 3

// An ID identifies a queue of a process: the key and, if the backend keeps owners and the caller
// has named one, the owner. Calls of an owner have a queue of their own, because they may be
// granted a key for which others have to wait, and the holder may be waiting for them.
type ID struct{ Key, Owner string }

// Queues are the queues of a process, by ID. C is the caller's type of a call that waits. The zero
// value is not usable.
type Queues[C any] struct {
	jitter   *jitter.Source
	notifies bool
	byID     map[ID]*queue[C]
	spare    []*queue[C]
	trip     roundTrip
	ended    []func()
}

// New returns no queues. notifies says whether the store notifies waiters.
func New[C any](j *jitter.Source, notifies bool) *Queues[C] {
	return &Queues[C]{jitter: j, notifies: notifies, byID: map[ID]*queue[C]{}}
}

// Len returns how many queues there are.
func (qs *Queues[C]) Len() int { return len(qs.byID) }

// End notes that a subscription is to be ended, see Ended.
func (qs *Queues[C]) End(stop func()) { qs.ended = append(qs.ended, stop) }

// Ended returns functions that end subscriptions which nobody needs any more. The caller calls
// them when it holds no lock, because a store may hold a lock of its own when it notifies.
func (qs *Queues[C]) Ended() []func() {
	ended := qs.ended
	qs.ended = nil
	return ended
}

// A queue is the calls of one process that wait for a key, in the order in which they came. Only
// the head asks the store, and not even the head does so while a lease of this process holds the
// key: the end of that lease is what it waits for. What one call learns of the key is known to
// all.
//
// A queue exists while it has waiters or a holder.
type queue[C any] struct {
	queues      *Queues[C]
	id          ID
	first, last *Local[C]
	joined      uint64 // how many have joined; each has a number
	overdue     int    // waiters that stay beyond their time because nothing is known yet
	holder      Holder // the lease of this process that holds the key, while it is valid
	sub         *Subscription
	notice      notice

	requester     *Local[C]     // the head, while its request is under way
	requestCovers uint64        // the number of the last waiter that had joined when it was sent
	requestedAt   time.Duration // when it was sent
	nextRequestAt time.Duration // the head does not ask before
	laterAt       time.Duration // it asks then nevertheless, see notifyLater; or never

	// What the store has last answered.
	answered   bool
	answeredAt time.Duration
	answer     *driver.Answer // Busy; nil if it was never asked
	err        error          // instead of an answer
	failures   int            // in a row

	polls  int  // answers of busy since a lease of this process held the key
	missed int  // holders of other processes since then
	had    bool // a lease of this process has held the key
}

// A notice is what a queue knows of notifications.
type notice uint8

const (
	noNotice       notice = iota
	noticed               // one has come since the last answer
	noticedRequest        // one has come since the request was sent: the answer may be older
)

// join puts w at the end of its queue.
func (qs *Queues[C]) join(w *Local[C]) {
	q := qs.byID[w.id]
	if q == nil {
		q = qs.unused()
		q.queues, q.id, q.laterAt = qs, w.id, clock.Never
		qs.byID[w.id] = q
	}
	q.joined++
	w.queue, w.number, w.ahead, w.state = q, q.joined, q.last, localQueued
	w.joinedBehind = q.first != nil || q.holder != nil
	if q.last != nil {
		q.last.after = w
	} else {
		q.first = w
	}
	q.last = w
}

func (qs *Queues[C]) unused() *queue[C] {
	if n := len(qs.spare); n > 0 {
		q := qs.spare[n-1]
		qs.spare = qs.spare[:n-1]
		return q
	}
	return new(queue[C])
}

// maxSpare bounds the empty queues that are kept for reuse.
const maxSpare = 256

// drop forgets the queue if it has no waiter and no holder.
func (qs *Queues[C]) drop(q *queue[C]) {
	if q.first != nil || q.holder != nil || qs.byID[q.id] != q {
		return
	}
	delete(qs.byID, q.id)
	if stop := q.sub.end(); stop != nil {
		qs.End(stop)
	}
	if len(qs.spare) < maxSpare {
		*q = queue[C]{}
		qs.spare = append(qs.spare, q)
	}
}

func (q *queue[C]) remove(w *Local[C]) {
	if w.ahead != nil {
		w.ahead.after = w.after
	} else {
		q.first = w.after
	}
	if w.after != nil {
		w.after.ahead = w.ahead
	} else {
		q.last = w.ahead
	}
	if q.requester == w {
		q.requester = nil
	}
	w.setState(localOutside)
	w.queue, w.ahead, w.after = nil, nil, nil
}

// head returns the first waiter, except those that are announcing that they wait; or nil.
func (q *queue[C]) head() *Local[C] {
	w := q.first
	for w != nil && w.state == localInWaitHook {
		w = w.after
	}
	return w
}

func (q *queue[C]) wakeHead() {
	if w := q.head(); w != nil {
		w.signal()
	}
}

func (q *queue[C]) known() bool { return q.answered || q.holder != nil }

// wasHeld reports whether the store has last answered that the key was held.
func (q *queue[C]) wasHeld() bool {
	return q.answered && q.err == nil && q.answer != nil && !q.undecided()
}

// undecided reports whether nobody seemed to hold the key at the last answer.
func (q *queue[C]) undecided() bool { return q.answer != nil && q.answer.Reason.IsUndecided() }

// busy returns what the store would answer to another claim, as far as is known.
func (q *queue[C]) busy(now time.Duration) driver.Answer {
	if q.holder != nil {
		return q.holder.Busy(now)
	}
	if q.answer == nil {
		return driver.Answer{}
	}
	return later(*q.answer, now-q.answeredAt)
}

// later returns what an answer of the store says some time after it came.
func later(g driver.Answer, passed time.Duration) driver.Answer {
	if g.Left > 0 {
		g.Left = max(0, g.Left-passed)
	}
	return g
}

// pause returns how long to wait before the next request for the busy key. A holder that the store
// cannot name may be a program that notifies nobody of its release. If nobody seems to hold the
// key, the next request comes long before w gives up.
func (q *queue[C]) pause(now time.Duration, w *Local[C]) time.Duration {
	switch {
	case q.undecided() && q.answer.Left > 0:
		return min(q.answer.Left, max(0, (w.Deadline-now)/4))
	case q.sub.isLive() && q.answer.Holder != "":
		return w.jitter.Notified(w.terms.TTL, q.answer.Left)
	}
	return w.jitter.Poll(q.polls, q.answer.Left)
}

func (q *queue[C]) wasBusy(a Answer) {
	if a.Grant.Holder == "" || q.answer == nil || a.Grant.Holder != q.answer.Holder {
		q.missed++
	}
	q.answer, q.failures = &a.Grant, 0
	q.polls++
	if a.Grant.Reason != driver.Unsent {
		q.queues.trip.note(a.Took)
	}
}

// resolve gives the answer to all that had joined when the request was sent: the store would give
// each of them the same answer. Calls that came later might get another one.
func (q *queue[C]) resolve(a Answer) {
	alone := q.first.after == nil
	for w := q.first; w != nil && w.number <= q.requestCovers; w = q.first {
		q.remove(w)
		w.result, w.resultShared = &a, !alone
		w.signal()
	}
	q.wakeHead()
	q.queues.drop(q)
}

// wakeOverdue wakes those that have stayed only until something is known.
func (q *queue[C]) wakeOverdue() {
	for w := q.first; w != nil && q.overdue > 0; w = w.after {
		if w.state == localOverdue {
			w.setState(localQueued)
			w.signal()
		}
	}
}

// notify has the head ask, because the key may be free: at once, unless this process has had the
// key and now leaves it to others.
func (q *queue[C]) notify(now time.Duration) {
	if q.requester != nil {
		q.notice = noticedRequest
		return
	}
	q.notice = noticed
	askAt := now
	if q.had && q.missed < yieldRounds {
		askAt += q.queues.jitter.Yield(time.Duration(q.queues.trip), q.missed, yieldRounds)
	}
	q.nextRequestAt = min(q.nextRequestAt, askAt)
	q.wakeHead()
}

// notifyLater has the head ask after a pause, because other processes are to ask before. The next
// notification takes the place of this one: the key has been taken meanwhile. A claim that names an
// owner has no pause, see Local.isPrompt.
func (q *queue[C]) notifyLater(now, in time.Duration) {
	w := q.head()
	q.laterAt = clock.Never
	if in == 0 || q.id.Owner != "" || w != nil && w.isPrompt() {
		q.notify(now)
		return
	}
	q.laterAt = now + in
	if q.laterAt < q.nextRequestAt {
		q.wakeHead()
	}
}

// A roundTrip is how long a round trip to the store takes.
type roundTrip time.Duration

// note takes a measurement into account: at once if it is shorter, otherwise a little, because the
// request may have been slow for a reason of its own.
func (r *roundTrip) note(took time.Duration) {
	if *r == 0 || took < time.Duration(*r) {
		*r = roundTrip(took)
		return
	}
	*r += (roundTrip(took) - *r) / 16
}
