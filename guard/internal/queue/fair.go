package queue

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
)

// A Fair waiter waits in the queue that the store keeps (driver.Subscriber). It keeps its position
// there by asking once in half a TTL.
type Fair struct {
	base
	ttl time.Duration
	end func(stop func())

	polls int           // answers of busy
	askAt time.Duration // when to ask again
	// when to check whether a claim ahead, which was notified, has come; or never
	checkAt    time.Duration
	notified   bool          // since the last request
	answer     driver.Answer // the last
	answeredAt time.Duration
	sub        *Subscription
}

var _ Waiter = (*Fair)(nil)

// NewFair returns a waiter of a claim with that TTL. end is called with what ends its
// subscription.
func NewFair(r Retries, ttl time.Duration, end func(stop func())) *Fair {
	w := &Fair{ttl: ttl, end: end, checkAt: clock.Never}
	w.init(r)
	return w
}

// Next implements Waiter.
func (w *Fair) Next(now time.Duration) Step {
	if w.result != nil {
		return w.quit()
	}
	due := min(w.askAt, w.checkAt)
	switch {
	case w.notified: // also if only just in time
	case w.polls > 0 && w.failures == 0 && now >= w.Deadline:
		return Step{Move: Quit, Grant: later(w.answer, now-w.answeredAt)}
	case now < due:
		return w.rest(now, due)
	}
	unprompted := w.sub != nil && !w.notified && w.checkAt == clock.Never
	w.notified, w.checkAt = false, clock.Never
	return Step{Move: Ask, Previous: w.previous, Unprompted: unprompted}
}

func (w *Fair) rest(now, due time.Duration) Step {
	if w.failures > 0 {
		return Step{Move: Rest, Until: due, Wake: w.waking()}
	}
	if w.announces {
		w.announces = false
		return Step{Move: Announce, Waiting: true, Grant: later(w.answer, now-w.answeredAt)}
	}
	step := Step{Move: Rest, Until: min(due, w.Deadline), Wake: w.waking(), Waiting: true, Grant: later(w.answer, now-w.answeredAt)}
	if w.sub == nil {
		w.sub = &Subscription{deliver: w.notify}
		step.Subscribe = w.sub
	}
	return step
}

// Answer implements Waiter.
func (w *Fair) Answer(now time.Duration, a Answer) {
	switch {
	case a.Err != nil:
		pause, again := w.retry(now, a.Err, false)
		if !again {
			w.result = &a
		}
		w.askAt = now + pause
	case a.Grant.State == driver.Done:
		w.result = &a
	default:
		w.busy(now, a.Grant)
		w.answer, w.answeredAt = a.Grant, now
		w.polls++
		pause := w.jitter.Queued(w.ttl, a.Grant.Left, a.Grant.Ahead)
		if !w.sub.isLive() || a.Grant.Holder == "" { // see queue.pause
			pause = min(pause, w.jitter.Poll(w.polls, -1))
		}
		w.askAt = now + pause
	}
}

// notify takes in a notification, see driver.Subscriber.
func (w *Fair) notify(now, in time.Duration) {
	switch {
	case in == 0:
		w.notified = true
	case in > 0:
		w.checkAt = now + in
	default:
		// A claim ahead has the key now. How long its lease lasts is not known, so ask soon.
		w.checkAt = clock.Never
		w.askAt = min(max(w.askAt, now+w.ttl/2), now+w.jitter.Poll(jitterLongest, -1))
	}
	w.signal()
}

// jitterLongest is a try at which Poll has reached its longest pause.
const jitterLongest = 10

// Renamed implements Waiter. The next rest begins a subscription under the claim's new ID.
func (w *Fair) Renamed() { w.Leave() }

// Leave implements Waiter.
func (w *Fair) Leave() (offered bool) {
	if stop := w.sub.end(); stop != nil {
		w.end(stop)
	}
	w.sub = nil
	return false
}
