package guard

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// A lease that is released while calls of this Guard wait for its key is handed off to the first
// of them. That needs no round trip. The next call uses the next of the fences that the store has
// reserved. The store sees one claim throughout. Each hold has a fence, a context and limits of
// its own. Hand-offs are bounded in number, by the fences, and in time, so that other processes
// can acquire the key.
const (
	// longestPeriod, and a tenth of the TTL, bound for how long a lease is handed off after its
	// grant.
	longestPeriod = 20 * time.Millisecond
	// mostHandOffs is how many fences to reserve: as many as a period has room for. The store
	// reserves fewer as its counter gets ahead of its clock.
	mostHandOffs = 4096
)

func handOffPeriod(ttl time.Duration) time.Duration { return min(longestPeriod, ttl/10) }

func termsOf(set *settings) queue.Terms {
	return queue.Terms{TTL: set.ttl, Owner: set.owner, Renew: !set.noRenewal, Among: max(set.among, 1)}
}

// successor returns the waiter to which h's lease can be handed off, or nil. Nothing must be left
// behind, and the lease must be valid for long enough to begin a run. Of calls that share the key
// in any number, none waits for the lease of another. Guard.mu must be held.
func (h *hold) successor(end ending, now time.Duration) *queue.Local[*acquisition] {
	g, t := h.guard, h.tenure
	ttl := t.claim.TTL
	switch {
	case t.claim.Reserve == 0, g.closed, h.set.among == driver.Any, end.cause != nil, h.lost != nil, t.state == tenureGone:
	case end.complete && h.markerTime(now) > 0, now < h.granted+h.set.minHold:
	case now-t.began >= handOffPeriod(ttl), t.validUntil()-now < ttl/2:
	default:
		return g.queues.Successor(t.claim.Key, h, termsOf(h.set))
	}
	return nil
}

// handOff hands h's lease off, now that h's own context has ended. It returns false if there is no
// successor. Guard.mu must be held.
func (h *hold) handOff(end ending) bool {
	g, t := h.guard, h.tenure
	now := g.clock.Now()
	w := h.successor(end, now)
	if w == nil {
		return false
	}
	g.queues.HandOff(w, t.offer(w.Call(), now, h.label))
	return true
}

// offer gives a call a further hold under t, with a further fence. Guard.mu must be held.
func (t *tenure) offer(a *acquisition, now time.Duration, previous string) *hold {
	t.claim.Fence++
	t.claim.Reserve--
	t.handOffs++
	h := t.guard.newHold(a, t, now)
	h.previous, h.state = previous, holdOffered
	a.offered = h
	t.guard.schedule.replan(t)
	return h
}

// take takes the lease that was handed off to the call. It returns nil if the lease was over
// before the call came to it, and an error if the call must not go on.
func (a *acquisition) take() (*hold, error) {
	h := a.offered
	a.cleanUp() // the call's own claim
	if err := a.interrupted(); err != nil || !h.accept() {
		a.reject()
		return nil, err
	}
	a.handedOff = true
	a.previous = queue.Previous{Label: h.previous, Ends: clock.Never}
	a.claim.Owner = h.owner
	a.last = Grant{State: Granted}
	return h, nil
}

// accept makes h, which was offered, the hold of the call. It returns false if h is over.
func (h *hold) accept() bool {
	if !h.valid() {
		return false
	}
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	if h.state != holdOffered { // Close has released it
		return false
	}
	h.state = holdTaken
	return true
}

// reject releases a lease that was handed off to the call, which goes on without it.
func (a *acquisition) reject() { a.offered.endLease(a.caller, ending{}, new(release)) }
