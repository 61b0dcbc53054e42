package queue

import (
	"bytes"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
)

// A Local waiter waits in the queue of its process.
type Local[C any] struct {
	base
	queues *Queues[C]
	id     ID
	terms  Terms
	call   C

	queue        *queue[C] // nil while it is not in one
	ahead, after *Local[C]
	number       uint64
	state        localState
	joinedBehind bool // others were waiting, or held the key, when it joined
	resultShared bool // others have the same result
}

// A localState is where a Local waiter is.
type localState uint8

const (
	localOutside localState = iota // it is in no queue: it has not joined yet, or has left
	localQueued
	localInWaitHook // its hook Wait runs, so it cannot be the head
	localOverdue    // its time to wait has passed, but nothing is known of the key yet
	localOffered    // it has left with a lease that was handed off to it, and has not taken it yet
)

var _ Waiter = (*Local[int])(nil)

// Terms are what a lease must agree with to be handed off: the store knows them.
type Terms struct {
	TTL        time.Duration
	Owner      string
	Renew      bool
	MaxHolders int
	Prompt     bool // see Local.isPrompt
}

// Init makes w ready for use. call is the caller's, see Queues.Successor.
func (w *Local[C]) Init(qs *Queues[C], p ID, t Terms, r Retries, call C) {
	w.init(r)
	w.queues, w.id, w.terms, w.call = qs, p, t, call
}

// Call returns the call that was given to Init.
func (w *Local[C]) Call() C { return w.call }

// Next implements Waiter.
func (w *Local[C]) Next(now time.Duration) Step {
	if w.state == localInWaitHook {
		w.setState(localQueued)
	}
	switch {
	case w.state == localOffered:
		w.state = localOutside
		return Step{Move: Take}
	case w.result != nil:
		return w.quitWithResult()
	case w.queue == nil:
		w.queues.join(w)
	}
	q := w.queue
	head := q.head() == w && q.holder == nil
	late := now >= w.Deadline
	// A store that does not answer is worth another try although the time to wait is up: a call
	// that does not wait makes a few, too. But not if other calls have found out the same.
	patient := head && w.failures > 0 && w.failures < tries && !w.joinedBehind
	switch {
	case now >= w.GiveUp:
		return w.giveUp(now)
	case late && q.known() && !patient:
		// The head asks once more, unless it has an answer that is new: a thousand calls whose
		// time is up at once would all do so.
		if head && q.err == nil && now-q.answeredAt >= jitter.FirstPoll {
			return w.ask(now)
		}
		return w.giveUp(now)
	case head && now >= w.asksAt():
		return w.ask(now)
	}
	return w.rest(now, head, late, late && !patient)
}

// isPrompt reports whether w asks without the pauses that let other processes ask before. A claim
// that shares the key does: one that asks before need not keep it away.
func (w *Local[C]) isPrompt() bool { return w.terms.Prompt || w.terms.MaxHolders > 1 }

// asksAt returns when w asks if it is the head.
func (w *Local[C]) asksAt() time.Duration {
	q := w.queue
	if q.laterAt != clock.Never && w.isPrompt() {
		return q.answeredAt // the head that was to ask later has left
	}
	return min(q.nextRequestAt, q.laterAt)
}

func (w *Local[C]) setState(s localState) {
	if w.state == localOverdue {
		w.queue.overdue--
	}
	if w.state = s; s == localOverdue {
		w.queue.overdue++
	}
}

// offer has w leave its queue with a lease that the caller keeps for it.
func (w *Local[C]) offer() {
	w.queue.remove(w)
	w.state = localOffered
	w.signal()
}

// quitWithResult returns the step of a waiter whose result is known. The record of a marker is a
// copy, because its receiver may change it.
func (w *Local[C]) quitWithResult() Step {
	step := w.quit()
	if w.resultShared {
		step.Grant.Record = bytes.Clone(step.Grant.Record)
	}
	w.Leave()
	return step
}

func (w *Local[C]) giveUp(now time.Duration) Step {
	q := w.queue
	step := Step{Move: Quit}
	switch {
	case q.holder == nil && q.err != nil:
		step.Err = q.err
	case !q.known():
		step.Err = ErrUnanswered
	default:
		step.Grant = q.busy(now)
	}
	w.Leave()
	return step
}

// ask returns the step in which w, the head, asks the store.
func (w *Local[C]) ask(now time.Duration) Step {
	q := w.queue
	if q.wasHeld() {
		w.previous = previous(q.answeredAt, *q.answer)
	}
	unprompted := q.sub != nil && q.notice == noNotice && q.laterAt == clock.Never && q.polls > 0 &&
		q.err == nil && !q.undecided()
	q.requester, q.requestCovers, q.requestedAt = w, q.joined, now
	q.notice, q.laterAt = min(q.notice, noticed), clock.Never
	return Step{
		Move: Ask, Previous: w.previous, Unprompted: unprompted,
		// Calls that have waited tend to come back, so one that joined behind others reserves even
		// if none waits now.
		Reserve: q.id.Owner == "" && w.terms.Renew && (w.after != nil || w.joinedBehind),
	}
}

// rest returns the step in which w waits.
func (w *Local[C]) rest(now time.Duration, head, late, overdue bool) Step {
	q := w.queue
	waiting := !head || q.wasHeld()
	if waiting && w.announces {
		w.announces = false
		w.setState(localInWaitHook)
		if head {
			q.wakeHead()
		}
		return Step{Move: Announce, Waiting: true, Grant: q.busy(now)}
	}
	if overdue {
		w.setState(localOverdue)
	}
	until := w.Deadline
	if late {
		until = w.GiveUp
	}
	if head {
		until = min(until, w.asksAt())
	}
	step := Step{Move: Rest, Until: until, Wake: w.waking(), Waiting: waiting, Grant: q.busy(now)}
	if head && w.queues.notifies && q.polls > 0 && q.sub == nil {
		q.sub = &Subscription{deliver: q.notifyLater}
		step.Subscribe = q.sub
	}
	return step
}

// Answer implements Waiter.
func (w *Local[C]) Answer(now time.Duration, a Answer) {
	q := w.queue
	noticedMeanwhile := q.notice == noticedRequest
	q.requester, q.notice = nil, noNotice
	q.answered, q.answeredAt, q.err = true, now, a.Err
	switch {
	case a.Err != nil:
		w.failed(now, a)
	case a.Grant.State == driver.Done:
		q.resolve(a)
		q.answered, q.failures, q.nextRequestAt = false, 0, now // calls that came later ask at once
	default:
		w.busy(now, a.Grant)
		q.wasBusy(a)
		q.nextRequestAt = now + q.pause(now, w)
	}
	if noticedMeanwhile && q.queues != nil { // a final answer may have dropped the queue
		q.notify(now)
	}
	q.wakeOverdue()
}

func (w *Local[C]) failed(now time.Duration, a Answer) {
	q := w.queue
	q.failures++
	pause, again := w.retry(now, a.Err, w.joinedBehind)
	if Permanent(a.Err) {
		q.nextRequestAt = now
		q.resolve(a) // the store would give each of them the same answer
		return
	}
	q.nextRequestAt = now + max(pause, w.jitter.Retry(q.failures)) // for any waiter
	if !again {
		w.result = &a
	}
}

// Renamed implements Waiter.
func (w *Local[C]) Renamed() {}

// Leave implements Waiter. If w was the head, the next waiter takes over.
func (w *Local[C]) Leave() (offered bool) {
	q := w.queue
	if q == nil {
		offered = w.state == localOffered
		w.state = localOutside
		return offered
	}
	wasHead := q.head() == w
	q.remove(w)
	if wasHead {
		q.wakeHead()
	}
	w.queues.drop(q)
	return false
}
