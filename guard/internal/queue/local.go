package queue

import (
	"bytes"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
)

// A Local waiter waits in the queue of its process.
type Local struct {
	base
	queues *Queues
	id     ID
	terms  Terms
	call   any

	queue        *queue // nil while it is not in one
	ahead, after *Local
	number       uint64
	crowded      bool   // others were waiting, or held the key, when it joined
	announcing   bool   // it is not to be the head now
	overdue      bool   // its time is up, but nothing is known of the key yet
	shared       bool   // others have the same result
	offered      Holder // the lease that was handed off to it
}

var _ Waiter = (*Local)(nil)

// Terms are what a lease must agree with to be handed off: the store knows them.
type Terms struct {
	TTL   time.Duration
	Owner string
	Renew bool
	Among int
}

// Init makes w ready for use. call is the caller's, see Queues.Successor.
func (w *Local) Init(qs *Queues, p ID, t Terms, r Retries, call any) {
	w.init(r)
	w.queues, w.id, w.terms, w.call = qs, p, t, call
}

// Call returns the call that was given to Init.
func (w *Local) Call() any { return w.call }

// Next implements Waiter.
func (w *Local) Next(now time.Duration) Step {
	w.announcing = false
	switch {
	case w.offered != nil:
		lease := w.offered
		w.offered = nil
		return Step{Move: Take, Lease: lease}
	case w.result != nil:
		return w.quitWithResult()
	case w.queue == nil:
		w.queues.join(now, w)
	}
	q := w.queue
	head := q.head() == w && q.holder == nil
	late := now >= w.Deadline
	// A store that does not answer is worth another try although the time to wait is up: a call
	// that does not wait makes a few, too. But not if other calls have found out the same.
	patient := head && w.failures > 0 && w.failures < tries && !w.crowded
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
	case head && now >= q.askAt:
		return w.ask(now)
	}
	if late && !patient && !w.overdue {
		w.overdue = true
		q.overdue++
	}
	return w.rest(now, head, late)
}

// quitWithResult returns the step of a waiter whose result is known. The record of a marker is a
// copy, because its receiver may change it.
func (w *Local) quitWithResult() Step {
	step := w.quit()
	if w.shared {
		step.Grant.Record = bytes.Clone(step.Grant.Record)
	}
	w.Leave()
	return step
}

// giveUp leaves the queue because the time to wait is up.
func (w *Local) giveUp(now time.Duration) Step {
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
func (w *Local) ask(now time.Duration) Step {
	q := w.queue
	if q.wasHeld() {
		w.previous = previous(q.answeredAt, *q.answer)
	}
	unprompted := q.sub != nil && !q.notified && q.polls > 0 && q.err == nil && !q.contested()
	q.asking, q.asked, q.askedAt, q.again = w, q.joined, now, false
	return Step{
		Move: Ask, Previous: w.previous, Unprompted: unprompted,
		// Calls that have waited tend to come back, so a crowded one reserves even if none waits
		// now.
		Reserve: q.id.Owner == "" && w.terms.Renew && (w.after != nil || w.crowded),
	}
}

// rest returns the step in which w waits.
func (w *Local) rest(now time.Duration, head, late bool) Step {
	q := w.queue
	waiting := !head || q.wasHeld()
	if waiting && w.announces {
		w.announces, w.announcing = false, true
		if head {
			q.wakeHead()
		}
		return Step{Move: Announce, Waiting: true, Grant: q.busy(now)}
	}
	until := w.Deadline
	if late {
		until = w.GiveUp
	}
	if head {
		until = min(until, q.askAt)
	}
	step := Step{Move: Rest, Until: until, Wake: w.waking(), Waiting: waiting, Grant: q.busy(now)}
	if head && w.queues.notifies && q.polls > 0 && q.sub == nil {
		q.sub = &Subscription{deliver: func(now, _ time.Duration) { q.notify(now) }}
		step.Subscribe = q.sub
	}
	return step
}

// Answer implements Waiter.
func (w *Local) Answer(now time.Duration, a Answer) {
	q := w.queue
	q.asking, q.notified = nil, false
	q.answered, q.answeredAt, q.err = true, now, a.Err
	switch {
	case a.Err != nil:
		w.failed(now, a)
	case a.Grant.State == driver.Done:
		q.resolve(a)
		q.answered, q.failures, q.askAt = false, 0, now // for those that came later
	default:
		w.busy(now, a.Grant)
		q.wasBusy(a)
		pause := q.pause(w)
		if a.Grant.Contested && now < w.GiveUp {
			pause = q.contest()
		}
		q.askAt = now + pause
	}
	if q.again {
		q.again = false
		q.notify(now)
	}
	q.wakeOverdue()
}

// failed notes that the store did not answer.
func (w *Local) failed(now time.Duration, a Answer) {
	q := w.queue
	q.failures++
	pause, again := w.retry(now, a.Err, w.crowded)
	if Permanent(a.Err) {
		q.askAt = now
		q.resolve(a) // the store would tell each of them the same
		return
	}
	q.askAt = now + max(pause, w.jitter.Retry(q.failures)) // whoever asks next
	if !again {
		w.result = &a
	}
}

// Leave implements Waiter. If w was the head, the next waiter takes over.
func (w *Local) Leave() {
	q := w.queue
	if q == nil {
		return
	}
	wasHead := q.head() == w
	q.remove(w)
	if wasHead {
		q.wakeHead()
	}
	w.queues.drop(q)
}

// Reject returns the lease that was handed off to w and that w has not taken, or nil. The caller
// releases it.
func (w *Local) Reject() Holder {
	lease := w.offered
	w.offered = nil
	return lease
}
