package guard

import (
	"context"
	"errors"
	"time"
)

const (
	// releaseGrace is how long a call still waits for its release after its context has ended. From
	// then on the cleaner sees to it.
	releaseGrace = 75 * time.Millisecond
	releaseTries = 3
)

// releaseTimeout bounds the release for which a call waits.
func releaseTimeout(ttl time.Duration) time.Duration { return min(ttl, 2*time.Second) }

// withGrace returns a context that has ctx's values and does not end with it, but at the latest after
// timeout, or grace after ctx has ended, whichever is first.
func withGrace(ctx context.Context, timeout, grace time.Duration) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	if ctx.Done() == nil {
		return detached, cancel
	}
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-detached.Done():
		}
	})
	return detached, func() { stop(); cancel() }
}

// An ending says how a lease comes to its end.
type ending struct {
	cause    error           // what its context ends with, or nil for ErrReleased
	finished bool            // leave the marker of WithOnce
	run      context.Context // the run's, which knows the label of the marker, or nil
}

// A givenBack is what came of giving a lease back.
type givenBack struct {
	hold   *hold // nil if it had been given back before
	err    error
	start  time.Duration
	took   time.Duration
	calls  [releaseTries]storeCall
	tried  int  // calls
	handed bool // the lease was handed on
}

// A storeCall is one call to the store.
type storeCall struct {
	sent, took time.Duration
	err        error
}

// giveBack ends h and tells the store. It stops believing in the lease before it sends the release,
// and is a no-op after the first time. ctx is the caller's: its end bounds the call only.
func (h *hold) giveBack(ctx context.Context, end ending) (back givenBack) {
	g := h.guard
	begun, first := h.beginRelease(end)
	if !first {
		return givenBack{}
	}
	back = givenBack{hold: h, start: begun.at}
	if begun.heir != nil {
		g.handOver(begun.heir)
		g.leave()
		back.handed = true
		return back
	}
	defer func() { g.leaveKey(h, back.start, back.took) }()
	if begun.lost != nil {
		back.err = begun.lost
		if begun.lost.Reason == LossNotHeld {
			h.cleanUpOrphans() // there is nothing else left to give back
			return back
		}
	}
	done := begun.remains.marks && end.finished && back.err == nil
	begun.remains.marks = done
	claim := h.claim
	if h.passed > 0 {
		claim.Label = h.set.label // the store knows that of who took the lease there
	}
	if done && end.run != nil {
		if more, _ := end.run.Value(markerLabel{}).(string); more != "" && len(h.set.label)+len(more) <= maxLabel {
			claim.Label = h.set.label + more
		}
	}
	call := g.newCall(ctx, back.start, releaseTimeout(claim.TTL), releaseGrace)
	defer call.end()
	held, err := back.send(call, claim, begun.remains)
	switch {
	case err != nil:
		g.cleaner.add(leftover{
			claim: claim, after: begun.remains.after, orphans: h.orphans,
			until: max(begun.storeEnd, g.now()), told: orphanOf(&h.ctx, h.set, h.key, OpRelease),
		})
		back.err = errors.Join(back.err, err)
	case !held && back.err == nil:
		back.err = h.foundLost()
		fallthrough
	default:
		h.cleanUpOrphans()
	}
	return back
}

// cleanUpOrphans undoes attempts to take the lease that had no answer, and may arrive when it has been given back.
func (h *hold) cleanUpOrphans() {
	if g := h.guard; h.orphans {
		g.cleaner.add(leftover{claim: h.claim, until: g.now() + h.claim.TTL, told: orphanOf(&h.ctx, h.set, h.key, OpAcquire)})
	}
}

// A releasing is a release that has begun.
type releasing struct {
	at       time.Duration
	lost     *LostError    // how the lease was lost before, or nil
	storeEnd time.Duration // until when the store may know it
	heir     *attempt      // who has it now, if it was handed on
	remains  remains
}

// beginRelease marks h as released and ends its context. It returns false if the release had begun before.
func (h *hold) beginRelease(end ending) (b releasing, first bool) {
	g := h.guard
	cause := end.cause
	if cause == nil {
		cause = ErrReleased
	}
	g.mu.Lock()
	if h.released != nil {
		g.mu.Unlock()
		return releasing{}, false
	}
	now := g.now()
	lost := h.expire(now)
	if h.lost == nil && h.suspended(g.slept(now)) {
		h.lose(LossSuspended, now-h.validUntil())
		lost = true
	}
	b = releasing{at: now, lost: h.lost, storeEnd: now + h.claim.TTL}
	if h.lost == nil {
		b.storeEnd = h.validUntil() + h.margin
	}
	b.remains = remains{hold: h, marks: h.set.window > 0 && !h.forget, record: h.record}
	h.released = cause
	b.heir = g.handOn(h, end, now)
	h.until.Store(0)
	g.unlockLines()
	if lost {
		h.announceLoss()
	}
	h.life.end(cause)
	return b, true
}

// foundLost is for a release to which the store says that the lease was not there any more.
func (h *hold) foundLost() error {
	h.guard.mu.Lock()
	h.lose(LossNotHeld, 0)
	lost := h.lost
	h.guard.mu.Unlock()
	h.announceLoss()
	return lost
}

// marks reports whether h leaves a marker if its work is done.
func (h *hold) marks() bool {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return h.set.window > 0 && !h.forget
}

// remains are what a release leaves behind.
type remains struct {
	hold   *hold
	marks  bool // a done marker
	record []byte
}

// after returns that, at the time of asking.
func (r remains) after() After {
	var left time.Duration
	if h := r.hold; h.set.minHold > 0 {
		left = max(0, h.granted+h.set.minHold-h.guard.now())
	}
	if r.marks {
		return After{Keep: max(r.hold.set.window, left), Done: true, Record: r.record}
	}
	return After{Keep: left}
}

// send tells the store, again if an answer was lost. Where a plain release was sent again and the
// store does not know the claim, the first one has arrived: that counts as held.
func (b *givenBack) send(ctx context.Context, c Claim, r remains) (held bool, err error) {
	g := b.hold.guard
	sent := b.start
	for try := 1; ; try++ {
		leave := r.after()
		held, err = g.locker.Release(ctx, c, leave)
		if err != nil {
			err = asStoreError(OpRelease, c.Key, err)
		}
		now := g.now()
		b.calls[b.tried] = storeCall{sent: sent, took: now - sent, err: err}
		b.tried++
		b.took = now - b.start
		if err == nil {
			return held || try > 1 && leave.Keep == 0, nil
		}
		if try == releaseTries || permanent(err) || !sleep(ctx, g.dice.retryPause(try)) {
			return false, err
		}
		sent = g.now()
	}
}

// report tells the hooks.
func (b givenBack) report() {
	if b.hold == nil || len(b.hold.set.hooks) == 0 {
		return
	}
	e := b.hold.event()
	for _, c := range b.calls[:b.tried] {
		e.Op, e.Start, e.Duration, e.Err = OpRelease, b.hold.guard.epoch.Add(c.sent), c.took, c.err
		hooks(b.hold.set.hooks).tell(&b.hold.ctx, &e, pickCall)
	}
	e.Op = ""
	e.Start, e.Duration, e.Err = b.hold.guard.epoch.Add(b.start), b.took, b.err
	e.HandedOn = b.handed
	e.Attempts, e.Held = b.tried, b.start-b.hold.granted
	hooks(b.hold.set.hooks).tell(&b.hold.ctx, &e, pickRelease)
}
