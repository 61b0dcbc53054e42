package guard

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/lazyctx"
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

// errAborted is the error of a call in which the Locker panicked, or the Locker or a hook ended
// the goroutine.
var errAborted = errors.New("the backend panicked, or the backend or a hook ended the goroutine")

// An ending is how a lease ends.
type ending struct {
	cause    error           // with which its context ends, or nil for ErrReleased
	complete bool            // leave the marker of WithOnce
	run      context.Context // the run's, which has the label of the marker, or nil
	first    *firstRequest   // of a release of several keys, or nil
}

// A release is the end of a hold.
type release struct {
	hold      *hold // nil if it had been released before
	err       error
	at        time.Duration // when it began
	took      time.Duration
	handedOff bool // to another call, or left to those that share the lease
	untaken   bool // no call has had the hold, and hooks do not know of it
	closing   bool // the Guard was closed before

	claim    Claim
	marks    bool // leave a done marker
	record   []byte
	storeEnd time.Duration // until when the store may know the claim
	sending  bool          // the store has yet to answer
	calls    [releaseTries]storeCall
	tried    int
}

// A storeCall is one call to the store.
type storeCall struct {
	sent, took time.Duration
	err        error
}

// endLease ends h: it ends the context, and hands the lease off or releases it. It does nothing
// after the first time. The end of ctx bounds the call only. The result is in r.
func (h *hold) endLease(ctx context.Context, end ending, r *release) {
	defer end.first.leave() // before the hooks
	if !h.beginRelease(end, r) {
		return
	}
	if r.handedOff {
		if h.lost != nil {
			r.err = h.lost
		}
		h.guard.leave()
		return
	}
	defer r.finish()
	if h.lost != nil {
		r.err = h.lost
		if h.lost.Reason == LossNotHeld {
			return // nothing is left to release
		}
		r.marks = false
	}
	if r.marks && end.run != nil {
		more, _ := end.run.Value(markerLabel{}).(string)
		if more != "" && len(h.set.label)+len(more) <= maxLabel {
			r.claim.Label = h.set.label + more
		}
	}
	r.sending = true
	held, err := r.sendInTime(ctx, end.first)
	r.sending = err != nil
	switch {
	case err != nil:
		r.err = errors.Join(r.err, err)
	case !held && r.err == nil:
		r.err = h.foundLost()
	}
}

// sendInTime sends the release, within the time that it may take.
func (r *release) sendInTime(ctx context.Context, first *firstRequest) (held bool, err error) {
	if r.marks {
		return r.sendMarking(ctx)
	}
	deadline := r.hold.guard.clock.Time(r.at + releaseTimeout(r.claim.TTL))
	call := lazyctx.NewCall(ctx, deadline, releaseGrace)
	defer call.End(nil)
	return r.send(call, first)
}

// beginRelease ends the lease's validity and context, and hands the lease off if it can. It
// returns false if the release had begun before.
func (h *hold) beginRelease(end ending, r *release) bool {
	g, t := h.guard, h.tenure
	cause := end.cause
	if cause == nil {
		cause = ErrReleased
	}
	g.mu.Lock()
	if h.released != nil {
		g.mu.Unlock()
		return false
	}
	now := g.clock.Now()
	lost := h.expire(now)
	if h.lost == nil && t.suspended(g.clock.Suspended(now)) {
		h.lose(LossSuspended, now-h.validUntil())
		lost = true
	}
	*r = release{hold: h, at: now, record: h.record, storeEnd: now + t.claim.TTL, untaken: h.offered, closing: g.closed}
	if h.offered {
		g.active.add(1) // so far, it counted with the call to which it was offered
	}
	if h.lost == nil {
		r.storeEnd = t.validUntil() + t.margin
	}
	r.marks = end.complete && !h.discard && h.markerTime(now) > 0
	h.released = cause
	h.over.Store(true)
	next := h.successor(end, now)
	if r.handedOff = t.leave(h); next == nil && !r.handedOff {
		r.endTenure(now)
	}
	g.unlock()
	if lost {
		h.announceLoss()
	}
	h.life.End(cause)
	if next != nil { // now that the context has ended
		g.mu.Lock()
		if r.handedOff = h.handOff(end); !r.handedOff {
			r.endTenure(g.clock.Now())
		}
		g.unlock()
	}
	return true
}

// endTenure takes the tenure out of the schedule: from now on nothing is renewed. Guard.mu must be
// held.
func (r *release) endTenure(now time.Duration) {
	h, t := r.hold, r.hold.tenure
	h.guard.schedule.remove(t)
	t.abandonRaises()
	if h.guard.shared[t.claim.Key] == t {
		delete(h.guard.shared, t.claim.Key)
	}
	h.guard.queues.Releasing(now, t.claim.Key, h)
	r.claim = t.claim
	if t.handOffs > 0 {
		r.claim.Label = h.set.label // the store has the label of the first hold
	}
}

// finish counts the hold out, and wakes the next waiter. What the store may still have is left to
// the cleaner: the claim of a release without an answer, or an attempt to acquire that may still
// arrive.
func (r *release) finish() {
	h := r.hold
	g := h.guard
	switch {
	case r.sending:
		if r.err == nil {
			r.err = driver.NewStoreError("", driver.OpRelease, r.claim.Key, errAborted)
		}
		own := *r // r itself need not be on the heap
		g.cleaner.add(orphan{
			claim: r.claim, leave: own.after, late: h.tenure.late,
			until: max(r.storeEnd, g.clock.Now()) + patience, report: h.orphanReport(driver.OpRelease),
		})
	case h.tenure.late:
		g.cleaner.add(orphan{claim: r.claim, late: true, report: h.orphanReport(driver.OpAcquire)})
	}
	g.mu.Lock()
	defer g.unlock()
	g.active.add(-1)
	g.queues.Released(r.at+r.took, r.claim.Key, r.at, r.took)
}

// foundLost is for a release to which the store answers that it does not know the claim.
func (h *hold) foundLost() error {
	h.guard.mu.Lock()
	h.lose(LossNotHeld, 0)
	lost := h.lost
	h.guard.mu.Unlock()
	h.announceLoss()
	return lost
}

// markerTime returns how long a done marker lasts that is left at an instant, or 0 if there is to
// be none.
func (h *hold) markerTime(at time.Duration) time.Duration {
	if h.set.fromStart {
		return max(0, h.granted+h.set.window-at)
	}
	return h.set.window
}

// after returns what the release leaves behind, at the time of the call.
func (r *release) after() After {
	h := r.hold
	if h.set.minHold == 0 && !r.marks {
		return After{}
	}
	now := h.guard.clock.Now()
	left := max(0, h.granted+h.set.minHold-now)
	if !r.marks {
		return After{Keep: left}
	}
	if marker := h.markerTime(now); marker > 0 {
		return After{Keep: max(marker, left), Done: true, Record: r.record}
	}
	return After{Keep: left} // the period of WithOncePer has passed since the release began
}

// send sends the release, again if an answer was lost. If a release that leaves nothing was sent
// again and the store does not know the claim, the first one has arrived: that counts as held.
func (r *release) send(ctx context.Context, first *firstRequest) (held bool, err error) {
	g := r.hold.guard
	sent := r.at
	for try := 1; ; try++ {
		leave := r.after()
		held, err = first.release(ctx, g, r.claim, leave)
		if err != nil {
			err = asStoreError(driver.OpRelease, r.claim.Key, err)
		}
		now := g.clock.Now()
		r.calls[r.tried] = storeCall{sent: sent, took: now - sent, err: err}
		r.tried++
		r.took = now - r.at
		if err == nil {
			return held || try > 1 && leave.Keep == 0, nil
		}
		if try == releaseTries || permanent(err) || !g.sleep(now+g.jitter.Retry(try), nil, ctx.Done(), nil) {
			return false, err
		}
		sent = g.clock.Now()
	}
}
