package redlock

import (
	"context"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// moreTries is how often a claim asks for another seat, if a majority could still grant that. Its
// first answers say which seats are free, so it needs more than one only if other claims come
// between.
const moreTries = 2

// hasSeat reports whether a grant of the claim has a seat.
func hasSeat(c driver.Claim) bool { return c.Among > 1 && c.Among <= driver.MaxSeats }

// onNode returns the claim as it is made on a node. If it shares the key, and its seat is not
// certain, it asks each node for the smallest seat there. These are the same, unless other claims
// come at the same time or nodes were away.
func onNode(c driver.Claim) driver.Claim {
	if c.Among > 1 && c.Seat == 0 {
		c.Seat = driver.AnySeat
	}
	return c
}

// count counts the votes for the seat that the ballot is about, or else for the one that most nodes
// have granted. b.mu must be held.
func (b *ballot) count(hasty bool) tally {
	l := b.locker
	if !hasSeat(b.claim) {
		return l.count(b.votes, 0, hasty)
	}
	seat := b.seat
	if seat == 0 {
		seat = b.mostGranted(0)
	}
	t := l.count(b.votes, seat, hasty)
	switch {
	case t.verdict == granted:
		t.seat = seat
	case t.verdict == refused && t.refusal.State == driver.Busy:
		t.seat = b.mostGranted(l.quorum)
	}
	return t
}

// mostGranted returns the seat that most nodes have granted, of those that at least so many nodes
// could grant. Of several, it returns the smallest, and 0 if there is none. b.mu must be held.
func (b *ballot) mostGranted(open int) (best int) {
	most := -1
	for seat := 1; seat <= b.claim.Among; seat++ {
		granted, could := 0, 0
		for i := range b.votes {
			if b.votes[i].grants(seat) {
				granted++
			}
			if b.votes[i].isOpen(seat) {
				could++
			}
		}
		if could >= open && granted > most {
			best, most = seat, granted
		}
	}
	return best
}

// isOpen reports whether the node could grant the seat, or has granted it.
func (v *vote) isOpen(seat int) bool { return v.err == nil && v.grant.Open&(1<<seat) != 0 }

// askFor asks the nodes again that could grant the seat, and have not. Those that have granted
// another one release it first. Votes that arrive late count for the seat alone: a claim must never
// be held under one seat and counted under another.
func (b *ballot) askFor(ctx context.Context, seat int) {
	b.mu.Lock()
	b.seat = seat
	var keep, again []vote
	for _, v := range b.votes {
		if v.isOpen(seat) && !v.grants(seat) {
			again = append(again, v)
		} else {
			keep = append(keep, v)
		}
	}
	b.votes = keep
	b.mu.Unlock()
	call := &callContext{}
	call.begin(ctx, b.claim.TTL, len(again))
	for _, v := range again {
		if v.grant.State == driver.Granted {
			b.locker.releaseAt(b.turns, v.node, b.claim, false)
		}
		b.locker.claims.inTurn(b.turns, v.node, &ask{ballot: b, node: v.node, call: call, seat: seat})
	}
}
