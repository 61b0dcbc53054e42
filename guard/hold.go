package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/lazyctx"
)

const (
	// minMargin is the least that is taken off a lease's validity. A timer may fire this late, and
	// the context still ends before the lease does in the store.
	minMargin = 20 * time.Millisecond
	// driftShare is the part of a TTL by which two clocks may drift apart during the TTL: 1 %, as
	// in the description of RedLock in the Redis documentation.
	driftShare = 100
)

func marginOf(ttl time.Duration) time.Duration { return ttl/driftShare + minMargin }

// A tenure is the time for which the store knows a claim of this Guard as the holder of a key,
// from the grant to the release. It has one hold at a time, unless the calls share the key. By
// hand-off, the hold of one call is followed by that of the next.
type tenure struct {
	guard  *Guard
	margin time.Duration
	began  time.Duration // when it was granted
	late   bool          // a request for it had no answer: it may still arrive
	until  atomic.Int64  // the instant at which validity ends
	anchor atomic.Int64  // how long the host had been suspended when validity was last counted

	// Guard.mu guards what follows.
	// as the store knows it; Fence is that of the hold, and Reserve counts those above it
	claim    Claim
	hold     *hold // the first; those that share it follow by hold.next
	handOffs int
	index    int           // in the schedule's heap, or -1
	next     time.Duration // the next event
	renewAt  time.Duration // when to renew, or clock.Never
	newest   *renewal      // the renewal that was sent last, or nil
	state    tenureState
	renewal  renewalState
	// when the Guard waits for its answer no longer, if it is awaited
	overdueAt time.Duration
	underway  int      // renewals without an answer
	failures  int      // renewals in a row without an answer in time
	lastErr   error    // why the last renewal failed
	raiseTo   uint64   // the fence that a call for several keys wants, or 0
	raises    []*raise // the calls that wait for that
}

// A tenureState is where a tenure is.
type tenureState uint8

const (
	tenureLive      tenureState = iota
	tenureGone                  // the store has said that it does not know the claim
	tenureReleasing             // its release has begun
)

// A renewalState is where the renewal of a tenure is.
type renewalState uint8

const (
	renewalIdle    renewalState = iota // the next one is due at renewAt
	renewalAwaited                     // the newest one is awaited until overdueAt
	renewalsFull                       // maxRenewals have no answer: no other one is sent
)

// A hold is one call's use of a tenure: the state behind a Lease.
type hold struct {
	guard    *Guard
	tenure   *tenure
	set      *settings
	key      string        // as the caller gave it; the tenure's claim has it as the store knows it
	fence    atomic.Uint64 // the store knows it; DoAll inside of the run raises it
	owner    string
	label    string       // its own: the store has that of the tenure's first hold
	previous string       // the label of the hold that has handed the tenure off
	ctx      leaseContext // the run's, or the lease's
	life     lazyctx.Context
	lease    Lease
	origin   context.Context
	granted  time.Duration // when the request that was granted was about to be sent
	maxAt    time.Duration // when the maximum hold is over, or clock.Never
	over     atomic.Bool   // it was lost or released

	// Guard.mu guards what follows.
	discard  bool // leave no done marker
	state    holdState
	next     *hold // which shares the tenure
	renewals int
	used     time.Duration // the most of the TTL that had passed when a renewal was answered
	lost     *LostError    // set once validity has ended by itself
	cause    error         // with which the release has ended the context
	record   []byte        // what to leave with the done marker
}

// A holdState is where a hold is in its life. While its call has it, it can be lost as well.
type holdState uint8

const (
	holdTaken    holdState = iota
	holdOffered            // to a call that waits, and has not taken it yet
	holdReleased           // its release has begun
)

// newTenure returns the tenure of a claim that the store has granted. It was sent at an instant,
// when anchor was read, and answered at another.
func (g *Guard) newTenure(c Claim, grant Grant, sent, anchor, answered time.Duration) *tenure {
	t := &tenure{guard: g, margin: marginOf(c.TTL), began: answered, claim: c, index: -1}
	t.claim.Fence = grant.Fence
	t.claim.Seat = grant.Seat
	t.claim.Reserve = grant.Reserved
	t.count(sent, anchor)
	return t
}

// newHold returns the hold of an acquisition that has got the tenure at an instant. It takes the
// place of the hold before it, or is added to those that share the tenure.
func (g *Guard) newHold(a *acquisition, t *tenure, at time.Duration) *hold {
	h := &hold{
		guard:   g,
		tenure:  t,
		set:     a.set,
		key:     a.key,
		owner:   t.claim.Owner,
		label:   a.claim.Label,
		origin:  a.ctx,
		granted: at,
		maxAt:   clock.Never,
	}
	h.fence.Store(t.claim.Fence)
	if h.set.maxHold > 0 {
		h.maxAt = at + h.set.maxHold
	}
	h.life.Init(a.caller)
	h.ctx = leaseContext{Context: &h.life, hold: h}
	h.lease = Lease{hold: h, ctx: &h.ctx}
	if h.set.among == driver.Any {
		h.next = t.hold
	}
	t.hold = h
	return h
}

// count starts the validity anew, from the instant before the request was sent and from the anchor
// that was read then.
func (t *tenure) count(sent, anchor time.Duration) {
	t.anchor.Store(int64(anchor))
	t.until.Store(int64(sent + t.claim.TTL - t.margin))
}

func (t *tenure) validUntil() time.Duration { return time.Duration(t.until.Load()) }

// counted returns the instant from which the validity counts.
func (t *tenure) counted() time.Duration { return t.validUntil() + t.margin - t.claim.TTL }

// validUntil returns the instant at which h's validity ends: that of its tenure, less WithMargin.
func (h *hold) validUntil() time.Duration { return h.tenure.validUntil() - h.set.margin }

// end returns the instant at which h ends unless it is renewed.
func (h *hold) end() time.Duration { return min(h.validUntil(), h.maxAt) }

// suspended reports whether the host was suspended since validity was last counted. total is how
// long it has been suspended by now.
func (t *tenure) suspended(total time.Duration) bool {
	return total-time.Duration(t.anchor.Load()) >= t.margin
}

// valid reports whether the lease is valid. It reads the clock, and whether the host was
// suspended.
func (h *hold) valid() bool {
	now := h.guard.clock.Now()
	if h.over.Load() || now >= h.end() {
		return false
	}
	return !h.tenure.suspended(h.guard.clock.Suspended(now))
}

// Busy implements queue.Holder. Guard.mu must be held.
func (h *hold) Busy(now time.Duration) driver.Grant {
	t := h.tenure
	return Grant{Left: max(0, t.validUntil()+t.margin-now), Label: t.claim.Label, Holder: t.claim.ID}
}

// nextEvent returns when the schedule has to look at t again. Guard.mu must be held.
func (t *tenure) nextEvent() time.Duration {
	next := clock.Never
	for h := t.hold; h != nil; h = h.next {
		if h.isHeld() {
			next = min(next, h.end())
		}
	}
	switch t.renewal {
	case renewalIdle:
		next = min(next, t.renewAt)
	case renewalAwaited:
		next = min(next, t.overdueAt)
	}
	return next
}

// expire ends the validity of all holds whose time has come, and returns them. Guard.mu must be
// held.
func (t *tenure) expire(now time.Duration) (lost []*hold) {
	for h := t.hold; h != nil; h = h.next {
		if h.expire(now) {
			lost = append(lost, h)
		}
	}
	return lost
}

// lose ends the validity of all holds that are held now, and returns them. announceLoss has to
// follow, without Guard.mu, which must be held.
func (t *tenure) lose(reason LossReason, now time.Duration) (lost []*hold) {
	for h := t.hold; h != nil; h = h.next {
		if h.isHeld() {
			h.lose(reason, now-h.validUntil())
			lost = append(lost, h)
		}
	}
	return lost
}

// isLost reports whether no hold is valid any more. Guard.mu must be held.
func (t *tenure) isLost() bool {
	for h := t.hold; h != nil; h = h.next {
		if h.lost == nil {
			return false
		}
	}
	return true
}

// isHeld reports whether h is neither lost nor released. Guard.mu must be held.
func (h *hold) isHeld() bool { return h.lost == nil && h.state != holdReleased }

// expire ends h's validity if its time has come, and reports whether it has. Guard.mu must be
// held.
func (h *hold) expire(now time.Duration) bool {
	switch until := h.validUntil(); {
	case !h.isHeld():
		return false
	case now >= h.maxAt:
		h.lose(LossMaxHold, now-h.maxAt)
		h.tenure.restIfOver()
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
func (h *hold) lose(reason LossReason, late time.Duration) {
	h.guard.queues.Lost(h.guard.clock.Now(), h.tenure.claim.Key, h)
	h.over.Store(true)
	h.lost = &LostError{
		Key: h.key, Fence: h.fence.Load(), Reason: reason, Late: max(late, 0), Renew: h.tenure.lastErr, ran: true,
	}
	if reason == LossNotHeld {
		h.lost.claim = &lostClaim{h.guard, h.tenure.claim.ID, h.guard.clock.Now()}
	}
}

// announceLoss ends the context and reports the loss.
func (h *hold) announceLoss() {
	h.life.End(h.lost)
	h.guard.mu.Lock()
	h.tenure.abandonRaises()
	h.guard.mu.Unlock()
	h.reportLoss()
}

// ended returns how h was lost, and the cause with which its release has ended its context; both
// are nil while it is held.
func (h *hold) ended() (lost *LostError, released error) {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return h.lost, h.cause
}

// overtaken returns the error of a function that ran while h ended, or that must not run because h
// has ended. err is the function's own. ctx is the caller's.
func (h *hold) overtaken(ctx context.Context, err error, ran bool) error {
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
