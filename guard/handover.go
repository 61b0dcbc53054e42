package guard

import (
	"context"
	"time"
)

// A released lease with calls of this Guard in line goes on to the first of them, without a round trip, under the next of the fences
// that were set aside when the store granted it. That is bounded, so that other processes get their turn: by the fences, and by time.
// The store knows it as one lease: by the claim's ID, owner and label. To everyone else each holder has a lease of his own, with
// a fence, a context and limits of its own.
const (
	// longestTurn bounds, with a tenth of the TTL, for how long a lease is handed on after it was granted.
	longestTurn = 20 * time.Millisecond
	// The fences to set aside are doubled when a turn has used all of them up in less than half of its time, and halved when it has
	// left more than half. Those that are left over put the store's counter ahead of its clock, which it must not be for long, as a
	// store that has lost the counter goes by the clock. The clock comes to one in a µs, so the most that a lease sets aside are 4 ms.
	// That is for each lease: a counter is for all keys, and for all processes, and what is left over of leases that come faster adds up.
	firstReserve, leastReserve, mostReserve = 64, 16, 4096
	// fenceEvery is how long a fence that was set aside has to wait for its turn at least: the store's clock has come to it
	// by then, so that even a store that forgets everything grants larger ones.
	fenceEvery = time.Microsecond
)

// setAside has the next request for a lease set fences aside if there is somebody to hand it on to: others in line, or those who were
// before it, as they tend to come back. A lone call sets nothing aside. Guard.mu must be held.
func (a *attempt) setAside(l *line) {
	if a.guard.sharing(a.set) != "" || a.set.noRenewal {
		return
	}
	a.claim.Reserve = 0
	if a.behind != nil || a.crowded {
		a.claim.Reserve = l.reserve
	}
}

// heir returns who gets h's lease, or nil if that has to be released. A lease is handed on only if nothing is to be left behind, it
// is valid for long enough to begin a run with, and the next in line wants just what the store was told: its owner, its TTL, and renewal.
// g.mu must be held.
func (g *Guard) heir(l *line, h *hold, end ending, now time.Duration) *attempt {
	if l == nil || l.holder != h || l.first == nil || h.claim.Reserve == 0 {
		return nil
	}
	a := l.first
	ttl := h.claim.TTL
	held := now - h.began
	switch {
	case g.closed, end.cause != nil, h.lost != nil:
	case end.finished && h.set.window > 0, now < h.granted+h.set.minHold:
	case held >= turnLength(ttl), held < time.Duration(h.passed+1)*fenceEvery:
	case h.validUntil()-now < ttl/2:
	case l.asking != nil, a.claim.TTL != ttl, a.set.noRenewal, a.set.owner != h.set.owner:
	default:
		return a
	}
	return nil
}

func turnLength(ttl time.Duration) time.Duration { return min(longestTurn, ttl/10) }

// pass gives h's lease to a: it goes on being renewed, by the answer to a renewal that is under way as well. a is to be told with
// handOver, when h's own context has ended. g.mu must be held.
func (g *Guard) pass(l *line, h *hold, a *attempt, now time.Duration) {
	l.remove(a)
	heir := a.prepared
	a.prepared, a.passing = nil, true
	heir.claim, heir.before = h.claim, h.label
	heir.claim.Fence++
	heir.claim.Reserve--
	heir.begin(now)
	heir.began, heir.passed = h.began, h.passed+1
	heir.orphans = h.orphans
	heir.anchor.Store(h.anchor.Load())
	heir.until.Store(h.until.Load())
	heir.renewAt, heir.failures, heir.lastErr = h.renewAt, h.failures, h.lastErr
	if h.renewing {
		heir.renewing, heir.renewal = true, h.renewal
		if heir.renewal == nil {
			heir.renewal = h
		}
		heir.renewal.heir = heir
	}
	a.given = heir
	l.holder = heir
	g.replace(h, heir)
}

// handOn hands h's lease on and returns to whom, or has it released, and returns nil: h leaves the schedule and the line. g.mu must
// be held, and unlockLines has to follow.
func (g *Guard) handOn(h *hold, end ending, now time.Duration) *attempt {
	var l *line
	if len(g.lines) > 0 && g.sharing(h.set) == "" {
		l = g.lines[place{key: h.claim.Key}]
	}
	if a := g.heir(l, h, end, now); a != nil {
		g.pass(l, h, a, now)
		return a
	}
	g.remove(h)
	if l != nil && l.holder == h {
		l.endTurn(h, now)
		g.unseat(h, never) // until the store was told
		g.drop(l)
	}
	return nil
}

// handOver tells a that it was given a lease.
func (g *Guard) handOver(a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a.passing = false
	a.signal()
}

// receive returns the lease that a was given, or why it does not take it; neither if the lease was over before a came to it.
func (a *attempt) receive(ctx context.Context) (*hold, error) {
	h := a.given // which nobody else touches any more
	a.given, a.inLine = nil, false
	a.leaveToCleaner() // what it asked for itself
	a.unknown = false
	var err error
	select {
	case <-a.guard.closing:
		err = &ClosedError{Key: a.key}
	default:
		if ctx.Err() != nil {
			err = contextEnded(ctx, OpAcquire, a.key)
		}
	}
	if err != nil || a.guard.now() >= h.validUntil() { // or the host was suspended: that was asked just now
		a.decline(ctx, h)
		return nil, err
	}
	a.handed = true
	a.previous, a.overAt = h.before, never
	a.claim = h.claim
	a.last = Grant{State: Granted, Fence: h.claim.Fence}
	return h, nil
}

// decline gives back a lease that a was given and does not take.
func (a *attempt) decline(ctx context.Context, h *hold) {
	g := a.guard
	a.given = nil
	g.mu.Lock()
	g.active++ // a goes on without it
	g.mu.Unlock()
	h.giveBack(ctx, ending{})
}

// endTurn notes, when h is about to be released, how many fences its turn has used. Guard.mu must be held.
func (l *line) endTurn(h *hold, now time.Duration) {
	switch set := h.passed + h.claim.Reserve; {
	case set == 0:
	case h.claim.Reserve == 0 && now-h.began < turnLength(h.claim.TTL)/2:
		l.reserve = min(2*l.reserve, mostReserve)
	case h.passed < set/2:
		l.reserve = max(l.reserve/2, leastReserve)
	}
}

// leaveKey is leave for a call that has held a key and told the store so, for some time from an instant.
func (g *Guard) leaveKey(h *hold, began, took time.Duration) {
	g.mu.Lock()
	defer g.unlockLines()
	g.active--
	g.notice(g.active)
	g.released(h, began, took)
}

// released has the first in line ask for the key that h has held, which the store may have free now. g.mu must be held, and unlockLines
// has to follow.
func (g *Guard) released(h *hold, began, took time.Duration) {
	if len(g.lines) == 0 {
		return
	}
	l := g.lines[place{key: h.claim.Key}]
	if l == nil {
		return
	}
	switch {
	case l.holder != nil, l.askedAt > began: // somebody has it already, or has asked since
	case l.asking != nil:
		l.rung = true
	default:
		g.trip.note(took)
		l.polls, l.lost = 0, 0
		l.ring(g)
	}
	g.drop(l)
}
