package guard

import (
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
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

// A storeLease is one lease as the store sees it, from its grant to its release. Calls use it one
// after another (hand-off) or together (WithShared): each of them is a holder.
type storeLease struct {
	guard  *Guard
	margin time.Duration
	began  time.Duration // when it was granted
	first  uint64        // the fence with which it was granted
	seat   int           // the seat of the grant, or 0
	late   bool          // a request for it had no answer: it may still arrive
	until  atomic.Int64  // the instant at which validity ends
	anchor atomic.Int64  // how long the host had been suspended when validity was last counted

	// Guard.mu guards what follows. The claim is as the store knows it. Fence is that of the
	// holder, and Reserve counts the fences above it.
	claim    driver.Claim
	holder   *holder // the newest; the others that share the lease follow by holder.next
	handOffs int
	index    int           // in the schedule's heap, or -1
	next     time.Duration // the next event
	renewAt  time.Duration // when to renew, or clock.Never
	newest   *renewal      // the renewal that was sent last, or nil
	state    storeLeaseState
	renewal  renewalState
	// until when the Guard waits for the answer to the newest one
	overdueAt time.Duration
	underway  int   // renewals without an answer
	failures  int   // renewals in a row without an answer in time
	lastErr   error // why the last renewal failed
	raises    raises
}

// A storeLeaseState is where a storeLease is.
type storeLeaseState uint8

const (
	storeLeaseLive      storeLeaseState = iota
	storeLeaseGone                      // the store has said that it does not know the claim
	storeLeaseReleasing                 // its release has begun
)

// A renewalState is where the renewal of a storeLease is.
type renewalState uint8

const (
	renewalIdle    renewalState = iota // the next one is due at renewAt
	renewalAwaited                     // the newest one is awaited until overdueAt
	renewalsFull                       // maxRenewals have no answer: no other one is sent
)

// newStoreLease returns the storeLease of a claim that the store has granted. It was sent at an
// instant, when anchor was read, and answered at another.
func (g *Guard) newStoreLease(c driver.Claim, grant driver.Answer, sent, anchor, answered time.Duration) *storeLease {
	t := &storeLease{guard: g, margin: marginOf(c.TTL), began: answered, first: grant.Fence, seat: grant.Seat, claim: c, index: -1}
	t.claim.Fence = grant.Fence
	t.claim.Fences.Reserve = grant.Reserved
	t.extendValidity(sent, anchor)
	return t
}

// extendValidity counts the validity anew, from the instant before the request was sent and from
// the anchor that was read then.
func (t *storeLease) extendValidity(sent, anchor time.Duration) {
	t.anchor.Store(int64(anchor))
	t.until.Store(int64(sent + t.claim.TTL - t.margin))
}

func (t *storeLease) validUntil() time.Duration { return time.Duration(t.until.Load()) }

// counted returns the instant from which the validity counts.
func (t *storeLease) counted() time.Duration { return t.validUntil() + t.margin - t.claim.TTL }

// storeTime returns an instant by the clock of the store, which has granted the fence by it.
func (t *storeLease) storeTime(now time.Duration) time.Time {
	return driver.Holder{Fence: t.first}.Since().Add(now - t.began)
}

// suspended reports whether the host was suspended since validity was last counted. total is how
// long it has been suspended by now.
func (t *storeLease) suspended(total time.Duration) bool {
	return total-time.Duration(t.anchor.Load()) >= t.margin
}

// nextEvent returns when the schedule has to look at t again. Guard.mu must be held.
func (t *storeLease) nextEvent() time.Duration {
	next := clock.Never
	for h := t.holder; h != nil; h = h.next {
		if h.isHeld() {
			next = min(next, h.end())
		}
	}
	switch t.renewal {
	case renewalIdle:
		next = min(next, t.renewAt)
	case renewalAwaited:
		next = min(next, t.overdueAt)
	case renewalsFull:
	}
	return next
}

// expire ends the validity of all holders whose time has come, and returns them. Guard.mu must be
// held.
func (t *storeLease) expire(now time.Duration) (lost []*holder) {
	for h := t.holder; h != nil; h = h.next {
		if h.expire(now) {
			lost = append(lost, h)
		}
	}
	return lost
}

// lose ends the validity of all holders that are held now, and returns them. announceLoss has to
// follow, without Guard.mu, which must be held.
func (t *storeLease) lose(reason LossReason, now time.Duration) (lost []*holder) {
	for h := t.holder; h != nil; h = h.next {
		if h.isHeld() {
			h.lose(reason, now-h.validUntil())
			lost = append(lost, h)
		}
	}
	return lost
}

// used returns how much of the TTL has passed, or 0 if the lease was lost. Guard.mu must be held.
func (t *storeLease) used(now time.Duration) time.Duration {
	if t.holder.lost != nil {
		return 0
	}
	return now - t.counted()
}

// longestMargin returns the longest margin of the calls that have t. Guard.mu must be held.
func (t *storeLease) longestMargin() (longest time.Duration) {
	for h := t.holder; h != nil; h = h.next {
		longest = max(longest, h.set.margin)
	}
	return longest
}

// areAll reports whether f is true for all holders. Guard.mu must be held.
func (t *storeLease) areAll(f func(*holder) bool) bool {
	for h := t.holder; h != nil; h = h.next {
		if !f(h) {
			return false
		}
	}
	return true
}

// leave takes a holder out of its storeLease, which goes on with others. schedule.replan has to
// follow. Guard.mu must be held.
func (t *storeLease) leave(h *holder) {
	for at := &t.holder; *at != nil; at = &(*at).next {
		if *at == h {
			*at = h.next
			break
		}
	}
	t.stopRenewingIfAllOver()
}

// stopRenewingIfAllOver stops renewals if no holder may be held any longer. Guard.mu must be held.
func (t *storeLease) stopRenewingIfAllOver() {
	if t.areAll(func(h *holder) bool { return h.lost != nil && h.lost.Reason == LossMaxHold }) {
		t.renewAt = clock.Never
	}
}
