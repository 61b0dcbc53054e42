package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// A holder is one call's use of a storeLease: the state behind a Lease.
type holder struct {
	guard      *Guard
	storeLease *storeLease
	set        *settings
	key        string        // as the caller gave it; the claim has it as the store knows it
	fence      atomic.Uint64 // the store knows it; DoAll inside of the run raises it
	owner      string
	label      string       // its own: the store has the label of the first holder
	previous   string       // the label of the holder that has handed the lease off
	ctx        leaseContext // the run's, or the lease's
	life       lazyctx.Context
	lease      Lease
	origin     context.Context
	granted    time.Duration // when the request that was granted was about to be sent
	maxAt      time.Duration // when the maximum hold is over, or clock.Never
	over       atomic.Bool   // it was lost or released

	// Guard.mu guards what follows.
	discard  bool // leave no done marker
	state    holderState
	next     *holder // another one that shares the lease
	renewals int
	used     time.Duration // the most of the TTL that had passed at the answer to a renewal
	lost     *LostError    // set once validity has ended by itself
	cause    error         // the cause of the end of the context, if the release has ended it
	record   []byte        // the record of the done marker
}

// A holderState is where a holder is in its life. While its call has it, it can be lost as well.
type holderState uint8

const (
	holderTaken    holderState = iota
	holderOffered              // a waiting call was offered it, and has not accepted it yet
	holderReleased             // its release has begun
)

// newHolder returns the holder of an acquisition that has got the lease at an instant. It takes
// the place of the holder before it, or is added to those that share the lease.
func (g *Guard) newHolder(a *acquisition, t *storeLease, at time.Duration) *holder {
	h := &holder{
		guard:      g,
		storeLease: t,
		set:        a.set,
		key:        a.key,
		owner:      t.claim.Owner,
		label:      a.claim.Label,
		origin:     a.ctx,
		granted:    at,
		maxAt:      clock.Never,
	}
	h.fence.Store(t.claim.Fence)
	if h.set.maxHold > 0 {
		h.maxAt = at + h.set.maxHold
	}
	h.life.Context = a.set.runContext(a.caller)
	h.ctx = leaseContext{Context: &h.life, holder: h}
	h.lease = Lease{holder: h, ctx: &h.ctx}
	if h.set.maxHolders == driver.Unlimited {
		h.next = t.holder
	}
	t.holder = h
	return h
}

// validUntil returns the instant at which h's validity ends: WithMargin before the end of its
// storeLease.
func (h *holder) validUntil() time.Duration { return h.storeLease.validUntil() - h.set.margin }

// end returns the instant at which h ends unless it is renewed.
func (h *holder) end() time.Duration { return min(h.validUntil(), h.maxAt) }

// valid reports whether the lease is valid. It reads the clock, and whether the host was
// suspended.
func (h *holder) valid() bool {
	now := h.guard.clock.Now()
	if h.over.Load() || now >= h.end() {
		return false
	}
	return !h.storeLease.suspended(h.guard.clock.Suspended(now))
}

// Busy implements Holder of package queue. Guard.mu must be held.
func (h *holder) Busy(now time.Duration) driver.Answer {
	t := h.storeLease
	return driver.Answer{Left: max(0, t.validUntil()+t.margin-now), Label: t.claim.Label, Holder: t.claim.ID}
}

// isHeld reports whether h is neither lost nor released. Guard.mu must be held.
func (h *holder) isHeld() bool { return h.lost == nil && h.state != holderReleased }

// expire ends h's validity if its time has come, and reports whether it has. Guard.mu must be
// held.
func (h *holder) expire(now time.Duration) bool {
	switch until := h.validUntil(); {
	case !h.isHeld():
		return false
	case now >= h.maxAt:
		h.lose(LossMaxHold, now-h.maxAt)
		h.storeLease.stopRenewingIfAllOver()
	case now >= until:
		// Renewals go on: a function that ignores its context is still running, and the store may
		// still know the claim.
		h.lose(LossExpired, now-until)
	default:
		return false
	}
	return true
}

// lose ends h's validity. announceLoss has to follow, without Guard.mu, which must be held.
func (h *holder) lose(reason LossReason, late time.Duration) {
	h.guard.queues.Lost(h.guard.clock.Now(), h.storeLease.claim.Key, h)
	h.over.Store(true)
	h.lost = &LostError{
		Key: h.key, Fence: h.fence.Load(), Reason: reason, Late: max(late, 0), Renew: h.storeLease.lastErr, ran: true,
	}
	if reason == LossNotHeld {
		id, at := h.storeLease.claim.ID, h.guard.clock.Now()
		h.lost.broken = func(ctx context.Context) string { return h.guard.broken.find(ctx, h.guard, id, at) }
	}
}

func (h *holder) announceLoss() {
	h.life.End(h.lost)
	h.guard.mu.Lock()
	h.storeLease.raises.abandon()
	h.guard.mu.Unlock()
	h.reportLoss()
}

// foundLost is for a release to which the store answers that it does not know the claim.
func (h *holder) foundLost() error {
	h.guard.mu.Lock()
	h.lose(LossNotHeld, 0)
	lost := h.lost
	h.guard.mu.Unlock()
	h.announceLoss()
	return lost
}

// ended returns how h was lost, and the cause with which its release has ended its context; both
// are nil while it is held.
func (h *holder) ended() (lost *LostError, released error) {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return h.lost, h.cause
}

// endedError returns the error of a function that ran while h ended, or that must not run because
// h has ended. err is the function's own. ctx is the caller's.
func (h *holder) endedError(ctx context.Context, err error, ran bool) error {
	lost, released := h.ended()
	if err == error(lost) || err == released { //nolint:errorlint // the cause itself adds nothing
		err = nil
	}
	if !hasEnded(ctx) {
		err = driver.HideContext(err) // the context that the function saw ended was ours
	}
	switch {
	case lost != nil:
		with := *lost.explained(ctx)
		with.Err, with.ran = err, ran
		return &with
	case errors.Is(released, ErrClosed):
		return &ClosedError{Key: h.key, Err: err, ran: ran}
	}
	return &LostError{Key: h.key, Fence: h.fence.Load(), Reason: LossReleased, Err: err, ran: ran}
}

// allows returns an *UpgradeError or a *SettingError if a call with these settings cannot join h,
// and how h ended if it has.
func (h *holder) allows(ctx context.Context, set *settings, key string) error {
	if max(set.maxHolders, 1) < max(h.set.maxHolders, 1) {
		return &UpgradeError{Key: key}
	}
	if set.window > 0 && set.marking != h.set.marking {
		return &SettingError{Setting: set.onceOption(), Value: set.window.String(), Reason: fmt.Sprintf(
			"must be that of the lease of %q, which the context already holds: a call inside of it leaves no done marker", key)}
	}
	if lost, released := h.ended(); lost != nil || released != nil {
		return h.endedError(ctx, nil, false)
	}
	return nil
}

// joined returns a context that ends with ctx and with h, even if ctx was detached from h. The
// function that is also returned ends it earlier.
func (h *holder) joined(ctx context.Context) (joined context.Context, end func()) {
	c := &lazyctx.Context{Context: ctx}
	deadline, limited := h.ctx.Deadline()
	if limited {
		c.InitCall(ctx, deadline, 0)
	}
	stop := context.AfterFunc(&h.ctx, func() {
		// The deadline also ends c: as a deadline, and not as a cancellation.
		if !limited || !errors.Is(h.ctx.Err(), context.DeadlineExceeded) {
			c.End(context.Cause(&h.ctx))
		}
	})
	return c, func() { stop(); c.End(ErrReleased) }
}

func (h *holder) claim() driver.Claim {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	c := h.storeLease.claim
	c.Fence, c.Fences.Reserve = h.fence.Load(), 0
	return c
}

func (h *holder) isReleased() bool {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return h.state == holderReleased
}

// endAfter has the maximum hold, if there is one, begin now.
func (h *holder) endAfter(maxHold, now time.Duration) {
	if maxHold == 0 {
		return
	}
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	h.maxAt = now + maxHold
	h.guard.schedule.replan(h.storeLease)
}

// markerTime returns how long a done marker lasts that is left at an instant, or 0.
func (h *holder) markerTime(at time.Duration) time.Duration { return h.set.lasts(h.granted, at) }

// event returns what all events of the holder have. start is when the operation began.
func (h *holder) event(start time.Duration) LeaseEvent {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	e := h.guard.event(h.set, h.key, h.owner, start)
	return LeaseEvent{Event: e, Fence: h.fence.Load(), Renewals: h.renewals, MaxUsed: h.used, Origin: h.origin}
}

func (h *holder) reportLoss() {
	if len(h.set.hooks) == 0 {
		return
	}
	e := LossEvent{h.event(h.granted), h.guard.clock.Now() - h.granted, h.lost}
	h.guard.reporter.report(&e.Event, true, func() {
		e.Err = e.Err.explained(context.Background())
		hooks(h.set.hooks).call(func(k *Hook) { send(&h.ctx, k.Loss, e) })
	})
}

// reportRenewal has the hooks called for a renewal. used is how much of the TTL had passed.
func (h *holder) reportRenewal(sent, took, used time.Duration, failures int, err error) {
	if len(h.set.hooks) == 0 {
		return
	}
	e := RenewEvent{h.event(sent), took, used, failures, err}
	h.guard.reporter.report(&e.Event, false, func() {
		if lost, ok := e.Err.(*LostError); ok { //nolint:errorlint // it is not wrapped
			e.Err = lost.explained(context.Background())
		}
		hooks(h.set.hooks).call(func(k *Hook) { send(&h.ctx, k.Renew, e) })
	})
}
