package guard

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

const (
	// releaseGrace is how long a call still waits for its release after its context has ended.
	// After that, the cleaner releases the claim.
	releaseGrace = 75 * time.Millisecond
	releaseTries = 3
)

// releaseTimeout bounds the release for which a call waits. A release that leaves a done marker
// has more time, see sendMarking.
func releaseTimeout(ttl time.Duration) time.Duration { return min(ttl, 2*time.Second) }

// releaseOptions say how a lease ends.
type releaseOptions struct {
	cause    error           // the cause of the end of its context; nil is ErrReleased
	complete bool            // leave the marker of WithOnce
	run      context.Context // the context of the run, with the label of the marker; or nil
}

// A release ends what a holder has.
type release struct {
	holder        *holder
	state         releaseState
	err           error
	at            time.Duration // when it began
	took          time.Duration
	neverAccepted bool // the lease was handed off, but no call took it; no hook is called

	claim    driver.Claim
	marks    bool // leave a done marker
	record   []byte
	storeEnd time.Duration // until when the store may know the claim
	calls    [releaseTries]storeCall
	tried    int
}

// A releaseState is how far a release has come.
type releaseState uint8

const (
	releaseNone     releaseState = iota // the holder had been released before
	releasePassedOn                     // the lease was handed off, or others share it
	releaseSending                      // the store has yet to answer
	releaseAnswered
	releaseFinished
)

// A storeCall is one call to the store.
type storeCall struct {
	sent, took time.Duration
	err        error
}

// end is the rest of Lease.Release: it sends the release, calls the hooks, and returns the error.
func (r *release) end(ctx context.Context) error {
	defer r.report()
	r.send(ctx)
	if r.err == nil {
		return nil
	}
	lost, _ := r.holder.ended()
	switch {
	case lost == nil && r.marks:
		return &MarkerError{Key: r.holder.key, Err: r.err}
	case r.err == error(lost): //nolint:errorlint // not joined with another
		r.err = lost.explained(ctx)
	}
	return r.err
}

// send sends the release, if it has to be sent, and finishes it.
func (r *release) send(ctx context.Context) {
	defer r.finish()
	if r.state != releaseSending {
		return
	}
	if r.marks {
		r.answered(r.sendMarking(ctx))
		return
	}
	deadline := r.holder.guard.clock.Time(r.at + releaseTimeout(r.claim.TTL))
	call := lazyctx.NewCall(ctx, deadline, releaseGrace)
	defer call.End(nil)
	r.answered(r.try(call))
}

func (r *release) answered(held bool, err error) {
	if err != nil {
		r.err = errors.Join(r.err, err)
		return
	}
	r.state = releaseAnswered
	if !held && r.err == nil {
		r.err = r.holder.foundLost()
	}
}

// begin ends the lease's validity and context, and hands the lease off if it can. send has to
// follow. Nothing happens if the release of h had begun before.
func (r *release) begin(h *holder, end releaseOptions) {
	g, t := h.guard, h.storeLease
	cause := cmp.Or(end.cause, ErrReleased)
	g.mu.Lock()
	if h.state == holderReleased {
		g.mu.Unlock()
		return
	}
	now := g.clock.Now()
	lost := h.expire(now)
	if h.lost == nil && t.suspended(g.clock.Suspended(now)) {
		h.lose(LossSuspended, now-h.validUntil())
		lost = true
	}
	r.holder, r.at, r.record = h, now, h.record
	if h.lost != nil {
		r.err, r.storeEnd = h.lost, now+t.claim.TTL
	} else {
		r.storeEnd = t.validUntil() + t.margin
		r.marks = end.complete && h.set.window > 0 && !h.discard && h.markerTime(now) > 0
	}
	if r.neverAccepted = h.state == holderOffered; r.neverAccepted {
		g.active.add(1) // until now, the call to which it was offered counted for both
	}
	h.state, h.cause = holderReleased, cause
	h.over.Store(true)
	switch {
	case t.holder != h || h.next != nil:
		t.leave(h)
		g.schedule.replan(t)
		r.state = releasePassedOn
	case t.claim.Fences.Reserve == 0 || end.cause != nil:
		r.endStoreLease(now, end)
	}
	g.unlock()
	if lost {
		h.announceLoss()
	}
	h.life.End(cause)
	if r.state == releaseNone { // now that the context has ended
		r.handOff(end)
	}
	if r.state == releasePassedOn {
		g.active.add(-1)
	}
}

// endStoreLease takes the storeLease out of the schedule: from now on nothing is renewed. Guard.mu
// must be held.
func (r *release) endStoreLease(now time.Duration, end releaseOptions) {
	h, t := r.holder, r.holder.storeLease
	r.state, t.state = releaseSending, storeLeaseReleasing
	if h.lost != nil && h.lost.Reason == LossNotHeld {
		r.state = releaseAnswered // nothing is left to release
	}
	h.guard.schedule.remove(t)
	if len(t.raises.waiting) > 0 {
		t.raises.abandon()
	}
	if h.guard.shared[t.claim.Key] == t {
		delete(h.guard.shared, t.claim.Key)
	}
	if h.guard.queues.Len() > 0 {
		h.guard.queues.Releasing(now, t.claim.Key, h)
	}
	r.claim = t.claim
	if t.handOffs > 0 {
		r.claim.Label = h.set.label // the store has the label of the first holder
	}
	if r.marks {
		r.claim.Label = h.markerLabel(end.run)
	}
}

// markerLabel returns the label of the done marker of a run, which has its own context, or nil.
func (h *holder) markerLabel(run context.Context) string {
	label := h.set.label
	if run != nil {
		more, _ := run.Value(markerLabel{}).(string)
		if len(label)+len(more) <= maxLabel {
			label += more
		}
	}
	return joinMarker(label, h.set.name, h.storeLease.storeTime(h.guard.clock.Now()))
}

// finish ends a release that was not passed on: it wakes the next waiter. What the store may still
// have is left to the cleaner: the claim of a release without an answer, or an attempt to acquire
// that may still arrive.
func (r *release) finish() {
	h := r.holder
	if r.state != releaseSending && r.state != releaseAnswered {
		return
	}
	g, sending := h.guard, r.state == releaseSending
	r.state = releaseFinished
	switch {
	case sending:
		if r.err == nil {
			r.err = driver.NewStoreError("", driver.OpRelease, r.claim.Key, errAborted)
		}
		own := *r // r itself need not be on the heap
		o := g.newOrphan(&h.ctx, h.set, h.key, driver.OpRelease, r.claim)
		o.leave, o.late, o.until = own.after, h.storeLease.late, max(r.storeEnd, g.clock.Now())+triedAfterEnd
		g.cleaner.add(o)
	case h.storeLease.late:
		o := g.newOrphan(&h.ctx, h.set, h.key, driver.OpAcquire, r.claim)
		o.late = true
		g.cleaner.add(o)
	}
	defer g.active.add(-1)
	if g.mu.Lock(); g.queues.Len() > 0 {
		g.queues.Released(r.at+r.took, r.claim.Key, r.at, r.took)
	}
	g.unlock()
}

// try sends the release, again if an answer was lost. If a release that leaves nothing was sent
// again and the store does not know the claim, the first one has arrived: that counts as held. The
// first one may have been sent with those of other keys.
func (r *release) try(ctx context.Context) (held bool, err error) {
	g := r.holder.guard
	for {
		sent := r.at
		if r.tried > 0 {
			err = r.calls[r.tried-1].err
			until := g.clock.Now() + g.jitter.Retry(r.tried)
			if r.tried == releaseTries || queue.Permanent(err) || !g.sleep(until, nil, ctx.Done(), nil) {
				return false, err
			}
			sent = g.clock.Now()
		}
		leave := r.after()
		held, err = g.releaseClaim(ctx, r.claim, leave)
		held = held || r.tried > 0 && leave.Keep == 0
		if r.noteCall(sent, err) == nil {
			return held, nil
		}
	}
}

// noteCall notes a call to the store that was sent at an instant, and returns its error.
func (r *release) noteCall(sent time.Duration, err error) error {
	if err != nil {
		err = asStoreError(driver.OpRelease, r.claim.Key, err)
	}
	now := r.holder.guard.clock.Now()
	r.calls[r.tried] = storeCall{sent: sent, took: now - sent, err: err}
	r.tried++
	r.took = now - r.at
	return err
}

func (r *release) report() {
	if r.state == releaseNone || r.neverAccepted || len(r.holder.set.hooks) == 0 {
		return
	}
	h, hs := r.holder, hooks(r.holder.set.hooks)
	for _, c := range r.calls[:r.tried] {
		e := h.releaseCall(c.sent, c.took, c.err)
		hs.call(func(k *Hook) { send(&h.ctx, k.Call, e) })
	}
	e := ReleaseEvent{
		LeaseEvent: h.event(r.at), Duration: r.took, Held: r.at - h.granted, Attempts: r.tried,
		HandedOff: r.state == releasePassedOn, Err: r.err,
	}
	hs.call(func(k *Hook) { send(&h.ctx, k.Release, e) })
}

func (h *holder) releaseCall(sent, took time.Duration, err error) CallEvent {
	return CallEvent{Event: h.event(sent).Event, Op: driver.OpRelease, Duration: took, Err: err}
}
