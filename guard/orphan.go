package guard

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

const (
	// lateRequestWindow is how much later a request may still reach the store that was in flight
	// when its caller gave up. So an earlier clean-up must be repeated.
	lateRequestWindow = time.Second
	// triedAfterEnd is how long a release is tried without an answer after its claim must have
	// ended.
	triedAfterEnd = 5 * time.Second
)

// An orphan is a claim that the store may have, and that no call uses: an acquire without an
// answer, a grant that came too late, or a release without an answer.
type orphan struct {
	claim driver.Claim
	// leave is what to leave behind, or nil for nothing.
	leave func() driver.After
	// late means that an attempt to acquire may arrive after a clean-up. Clean-ups are then
	// repeated, at growing intervals, until twice the TTL has passed since the last attempt.
	late bool
	// until is when to stop without an answer. The default is twice the TTL from now.
	until time.Duration

	// For the hooks, if there are any. The event has no Start.
	hooks hooks
	ctx   context.Context //nolint:containedctx // the context of the event
	event Event
	op    driver.Op

	since     time.Duration // when it became an orphan
	next      time.Duration // when to clean up (again)
	interval  time.Duration // the pause before the next repetition
	tries     int
	state     orphanState
	permanent bool // the last clean-up has failed, and another one would fail, too
	err       error
}

// newOrphan returns the orphan that a call to the store has left. Hooks are called for it.
func (g *Guard) newOrphan(ctx context.Context, set *settings, key string, op driver.Op, c driver.Claim) orphan {
	o := orphan{claim: c}
	if len(set.hooks) > 0 {
		o.hooks, o.ctx, o.op, o.event = set.hooks, context.WithoutCancel(ctx), op, g.event(set, key, c.Owner, 0)
	}
	return o
}

// An orphanState says what clean-ups have reached.
type orphanState uint8

const (
	orphanUnanswered orphanState = iota // the store has answered none
	orphanAnswered                      // it has answered, but a late attempt may arrive
	orphanReleased                      // it has answered one sent after late attempts
)

// latestRequest returns the time by which a late attempt should have arrived.
func (o *orphan) latestRequest() time.Duration { return o.since + min(o.claim.TTL, lateRequestWindow) }

// isUnresolved reports whether the store may still have the claim, or its marker may not have been
// written.
func (o *orphan) isUnresolved(now time.Duration) bool {
	return o.state == orphanUnanswered && (o.leave != nil || now < o.since+o.claim.TTL)
}

// isDroppable reports whether the orphan may be dropped to make room: the store has answered a
// clean-up, or none can succeed.
func (o *orphan) isDroppable() bool { return o.state != orphanUnanswered || o.permanent }

// note takes the answer to a clean-up that was sent at an instant.
func (o *orphan) note(g *Guard, sent time.Duration, err error) {
	now := g.clock.Now()
	o.tries++
	o.err, o.permanent = nil, err != nil && queue.Permanent(err)
	switch {
	case err != nil:
		o.err = asStoreError(driver.OpCleanUp, o.claim.Key, err)
		o.next = now + g.jitter.Retry(o.tries)
		if o.permanent { // unless someone corrects the cause
			o.next = max(o.until, now+1)
		}
	case o.leave != nil && o.late: // from now on it is an acquire without an answer
		o.leave, o.since, o.until = nil, now, now+2*o.claim.TTL
		o.next = now + o.interval
	default:
		o.state = max(o.state, orphanAnswered)
		if sent >= o.latestRequest() {
			o.state = orphanReleased
		}
		o.next = min(now+o.interval, max(o.until, now+1))
		o.interval += o.interval / 2
	}
	o.reportCall(g, sent, now-sent)
}

// report has the hooks called for the begin, or the end, of the work on the orphan.
func (o *orphan) report(g *Guard, begins bool) {
	if len(o.hooks) == 0 {
		return
	}
	e := OrphanEvent{Event: o.event, Op: o.op, Pending: begins, Attempts: o.tries}
	e.Start = g.clock.Time(o.since)
	if !begins {
		e.Duration, e.Err = g.clock.Now()-o.since, o.err
	}
	hs, ctx := o.hooks, o.ctx
	g.reporter.report(&e.Event, true, func() { hs.call(func(h *Hook) { send(ctx, h.Orphan, e) }) })
}

func (o *orphan) reportCall(g *Guard, sent, took time.Duration) {
	if len(o.hooks) == 0 {
		return
	}
	e := CallEvent{Event: o.event, Op: driver.OpCleanUp, Duration: took, Err: o.err}
	e.Start = g.clock.Time(sent)
	g.reporter.reportCall(o.ctx, o.hooks, e)
}
