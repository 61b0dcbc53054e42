package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A hold is a granted claim: the state behind a Lease, from the grant to the release.
type hold struct {
	guard *Guard
	set   *settings
	key   string // as the caller gave it
	claim Claim
	ctx   leaseContext // the run's, or the lease's
	life  lifetime     // inside of ctx
	lease Lease        // that of who acquired it

	origin  context.Context
	label   string        // its own: the store has that of the first to whom it granted the lease
	before  string        // that of who has handed it on
	granted time.Duration // when the request that was granted was about to be sent
	margin  time.Duration
	maxAt   time.Duration // when the maximum hold is over, or never
	orphans bool          // an attempt of this claim had an unknown outcome and may still arrive
	began   time.Duration // when the lease came to this Guard: to this hold, or to the first of those by whom it was handed on
	passed  int           // how often it was handed on since
	until   atomic.Int64  // the instant at which validity ends; 0 once it has
	anchor  atomic.Int64  // how long the host had been suspended when validity was last counted

	// Guard.mu guards what follows.
	index    int           // in the schedule's heap, or -1
	next     time.Duration // the next event
	renewAt  time.Duration // when to renew, or never
	renewing bool          // a renewal is under way
	renewal  *hold         // for whom it was begun, if the lease was handed on since
	heir     *hold         // who has the lease now, if this hold is such a one
	failures int           // renewals in a row that had no answer
	renewals int
	used     time.Duration // the most of the TTL that had passed when a renewal was answered
	lastErr  error         // why the last renewal failed
	lost     *LostError    // set once validity has ended by itself
	released error         // set once the release has begun: what the context ended with
	record   []byte        // what to leave with the done marker
	forget   bool          // leave none
}

const (
	// minMargin is the least that is taken off a lease's validity: a timer may fire this late, and a
	// context still ends before the lease does in the store.
	minMargin = 20 * time.Millisecond
	// driftShare is the part of a TTL by which two clocks may drift apart while it passes. It is that
	// of Redis' description of RedLock: 1 %.
	driftShare = 100
)

func marginOf(ttl time.Duration) time.Duration { return ttl/driftShare + minMargin }

// newHold makes a hold for a's lease, which it does not have yet.
func (g *Guard) newHold(ctx context.Context, a *attempt) *hold {
	h := &hold{
		guard:   g,
		set:     a.set,
		key:     a.key,
		origin:  a.ctx,
		label:   a.claim.Label,
		margin:  marginOf(a.claim.TTL),
		index:   -1,
		renewAt: never,
	}
	h.life.Context = ctx
	h.ctx = leaseContext{Context: &h.life, hold: h}
	h.lease = Lease{hold: h, ctx: &h.ctx}
	return h
}

// grant gives h the lease that the store has granted to a's claim at the instant now. validFrom is that before the request was sent and
// anchor what asleep said then.
func (h *hold) grant(a *attempt, grant Grant, validFrom, now, anchor time.Duration) {
	h.claim = a.claim
	h.claim.Fence = grant.Fence
	if grant.Held {
		h.claim.Reserve = 0 // only behind a fence that is new
	}
	h.orphans = a.unknown
	h.began = now
	h.begin(validFrom)
	if !h.set.noRenewal {
		h.renewAt = h.guard.dice.renewalAfter(validFrom, h.claim.TTL)
	}
	h.count(validFrom, anchor)
}

// begin counts h's own limits from an instant.
func (h *hold) begin(at time.Duration) {
	h.granted, h.maxAt = at, never
	if h.set.maxHold > 0 {
		h.maxAt = at + h.set.maxHold
	}
}

func (h *hold) validUntil() time.Duration { return time.Duration(h.until.Load()) }

// valid reports whether the lease is still to be believed in. It reads the clock, and whether the host
// was suspended.
func (h *hold) valid() bool {
	now := h.guard.now()
	if now >= h.validUntil() || now >= h.maxAt {
		return false
	}
	return !h.suspended(h.guard.slept(now))
}

// suspended reports whether the host was suspended since validity was last counted. slept is for how long it has been by now.
func (h *hold) suspended(slept time.Duration) bool {
	return slept-time.Duration(h.anchor.Load()) >= h.margin
}

// count starts the lease's validity anew, from the instant before the request was sent and from what
// asleep said then.
func (h *hold) count(sent, anchor time.Duration) {
	h.anchor.Store(int64(anchor))
	h.until.Store(int64(sent + h.claim.TTL - h.margin))
}

// nextEvent returns when the schedule has to look at h again. The Guard's mu must be held.
func (h *hold) nextEvent() time.Duration {
	next := never
	if h.lost == nil {
		next = min(h.validUntil(), h.maxAt)
	}
	if !h.renewing {
		next = min(next, h.renewAt)
	}
	return next
}

// expire ends h's validity if its time has come, and reports whether it has done so. The Guard's mu
// must be held.
func (h *hold) expire(now time.Duration) bool {
	switch until := h.validUntil(); {
	case h.lost != nil:
		return false
	case now >= h.maxAt:
		h.lose(LossMaxHold, now-h.maxAt)
		h.renewAt = never
	case now >= until:
		// Renewing goes on: a function that ignores its context is still running, and the store
		// may still know the lease.
		h.lose(LossExpired, now-until)
	default:
		return false
	}
	return true
}

// lose ends h's validity. announceLoss has to follow, without the Guard's mu, which must be held.
func (h *hold) lose(reason LossReason, late time.Duration) {
	h.guard.unseat(h, h.guard.now())
	h.until.Store(0)
	h.lost = &LostError{Key: h.key, Fence: h.claim.Fence, Reason: reason, Late: max(late, 0), Renew: h.lastErr}
}

// announceLoss ends the run's context and tells the hooks.
func (h *hold) announceLoss() {
	h.life.end(h.lost)
	if len(h.set.hooks) == 0 {
		return
	}
	e := h.event()
	e.Start, e.Duration, e.Err = h.guard.epoch.Add(h.granted), h.guard.now()-h.granted, h.lost
	h.guard.reporter.report(func() { hooks(h.set.hooks).tell(&h.ctx, &e, pickLoss) }, false)
}

// ended returns how h was lost and what its release ended its context with; nil, nil while it is held.
func (h *hold) ended() (lost *LostError, released error) {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return h.lost, h.released
}

// overtaken returns err, which a function that ran under h returned, inside of the error that says how h
// ended under it. ctx is the caller's.
func (h *hold) overtaken(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		err = hideContext(err) // the end of a context that the function saw was ours, not the caller's
	}
	lost, released := h.ended()
	switch {
	case lost != nil:
		with := *lost
		with.Err = err
		return &with
	case errors.Is(released, ErrClosed):
		return &ClosedError{Key: h.key, Err: err}
	}
	return &LostError{Key: h.key, Fence: h.claim.Fence, Reason: LossReleased, Err: err}
}

// event returns an Event about h. When, and for how long, is left to who tells.
func (h *hold) event() Event {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return Event{
		Name:     h.set.name,
		Key:      h.key,
		Owner:    h.claim.Owner,
		Fence:    h.claim.Fence,
		TTL:      h.claim.TTL,
		Used:     h.used,
		Renewals: h.renewals,
		Failures: h.failures,
		State:    Granted,
		Origin:   h.origin,
		Aside:    h.set.aside,
	}
}
