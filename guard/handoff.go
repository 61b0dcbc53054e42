package guard

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// A lease that is released while calls of this Guard wait for its key is handed off to the first
// of them. That needs no round trip. The next call uses the next of the fences that the store has
// reserved. The store sees one claim throughout. Each holder has a fence, a context and limits of
// its own. Hand-offs are bounded in number, by the fences, and in time, so that other processes
// can acquire the key.
const (
	// maxHandOffPeriod, and a tenth of the TTL, bound for how long a lease is handed off after its
	// grant.
	maxHandOffPeriod = 20 * time.Millisecond
	// maxHandOffs is how many fences to reserve: as many as a period has room for. The store
	// reserves fewer as its counter gets ahead of its clock.
	maxHandOffs = 4096
)

func handOffPeriod(ttl time.Duration) time.Duration { return min(maxHandOffPeriod, ttl/10) }

// canOffer reports whether t can be handed off, or have a further holder: a fence is left, and t
// is young, and valid for long enough to begin a run. Guard.mu must be held.
func (t *storeLease) canOffer(now time.Duration) bool {
	ttl := t.claim.TTL
	return t.claim.Fences.Reserve > 0 && t.state == storeLeaseLive && !t.guard.isClosed() &&
		now-t.began < handOffPeriod(ttl) && t.validUntil()-now >= ttl/2
}

// offer gives a call a further holder under t, with a further fence. Guard.mu must be held.
func (t *storeLease) offer(a *acquisition, now time.Duration, previous string) *holder {
	t.claim.Fence++
	t.claim.Fences.Reserve--
	t.handOffs++
	h := t.guard.newHolder(a, t, now)
	h.previous, h.state = previous, holderOffered
	a.offered = h
	t.guard.schedule.replan(t)
	return h
}

// handOff hands the lease off to a waiter of this process, or else ends the storeLease.
func (r *release) handOff(end releaseOptions) {
	h, g := r.holder, r.holder.guard
	g.mu.Lock()
	defer g.unlock()
	now := g.clock.Now()
	w := r.successor(end, now)
	if w == nil {
		r.endStoreLease(now, end)
		return
	}
	r.state = releasePassedOn
	g.queues.HandOff(w, h.storeLease.offer(w.Call(), now, h.label))
}

// successor returns the waiter to which the lease can be handed off, or nil. Nothing must be left
// behind, and the lease must be valid for long enough to begin a run. Of calls that share the key
// in any number, none waits for the lease of another. Guard.mu must be held.
func (r *release) successor(end releaseOptions, now time.Duration) *queue.Local[*acquisition] {
	h, t := r.holder, r.holder.storeLease
	switch {
	case !t.canOffer(now), h.set.maxHolders == driver.Unlimited, end.cause != nil, h.lost != nil:
	case end.complete && h.markerTime(now) > 0, now < h.granted+h.set.minHold:
	default:
		return h.guard.queues.Successor(t.claim.Key, h, termsOf(h.set))
	}
	return nil
}

func termsOf(set *settings) queue.Terms {
	return queue.Terms{
		TTL: set.ttl, Owner: set.owner, Renew: !set.noRenewal, MaxHolders: max(set.maxHolders, 1),
		// A release is also notified to the processes that watch an election. They may be more
		// than the candidates, and they do not ask for the key.
		Prompt: set.purpose == PurposeCandidate,
	}
}

// take takes the lease that was handed off to the call. It returns nil if the lease was over
// before the call came to it, and an error if the call must not go on.
func (a *acquisition) take() (*holder, error) {
	h := a.offered
	a.cleanUp() // the call's own claim
	if err := a.interrupted(); err != nil || !h.accept() {
		_ = h.lease.Release(a.caller) // the call goes on without it
		return nil, err
	}
	a.handedOff = true
	a.previous = queue.Previous{Label: h.previous, Ends: clock.Never}
	a.claim.Owner = h.owner
	a.last = StoreAnswer{State: driver.Granted}
	return h, nil
}

// accept makes h the holder of the call that was offered it. It returns false if h is over.
func (h *holder) accept() bool {
	if !h.valid() {
		return false
	}
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	if h.state != holderOffered { // Close has released it
		return false
	}
	h.state = holderTaken
	return true
}

// Calls that share a key in any number (WithShared) join one lease while it is young: share and
// admit are the two ways.

// share adds the call to a lease that shared calls of this Guard have, if there is one that is not
// too old, and if no other call waits for the key. It returns nil otherwise.
func (a *acquisition) share() (*holder, error) {
	if !a.set.joins() {
		return nil, nil
	}
	g := a.guard
	g.mu.Lock()
	t := g.shared[a.claim.Key]
	joined := t != nil && !g.queues.Waits(g.queueID(a.claim.Key, a.set)) && t.join(a, g.clock.Now(), "")
	g.unlock()
	if !joined {
		return nil, nil
	}
	return a.take()
}

// join offers the call a holder under t. It returns false if t cannot be joined. Guard.mu must be
// held.
func (t *storeLease) join(a *acquisition, now time.Duration, previous string) bool {
	if !t.canOffer(now) || t.renewAt == clock.Never || t.claim.TTL != a.set.ttl {
		return false
	}
	t.offer(a, now, previous)
	return true
}

// admit lets the first of the waiting calls join t, until there is one that does not join leases.
// t was just granted to a call that joins. Guard.mu must be held.
func (t *storeLease) admit(set *settings, now time.Duration) {
	g := t.guard
	g.shared[t.claim.Key] = t
	for {
		w := g.queues.First(g.queueID(t.claim.Key, set))
		if w == nil || !w.Call().set.joins() || !t.join(w.Call(), now, t.holder.label) {
			return
		}
		g.queues.Offer(w)
	}
}
