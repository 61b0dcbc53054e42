package simulation_test

import (
	"fmt"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// count checks that no more hold the key, which mine now shares with others, than any of them
// allows. A reader counts with the others of its lease. b.mu must be held.
func (b *beliefs) count(mine *belief, with []*belief) {
	if !mine.shared() || b.mayBeLost(mine) {
		return
	}
	holders, most := map[any]bool{}, mine.MaxHolders
	for _, one := range append(with, mine) {
		switch {
		case b.mayBeLost(one):
			continue
		case one.MaxHolders == driver.Unlimited:
			holders[one.claim] = true
		default:
			holders[one] = true
		}
		most = min(most, one.MaxHolders)
	}
	b.world.tally.most.Store(max(b.world.tally.most.Load(), int64(len(holders))))
	if len(holders) > most {
		b.world.violate("I1", "%d hold %s with %s, although only %d may, and the node has lost nothing", len(holders), mine.Key, mine.worker, most)
	}
}

// mayBeLost reports whether the store may have lost a lease before its time.
func (b *beliefs) mayBeLost(one *belief) bool {
	w := b.world
	return w.forgottenSince(one.proven.get()) || w.sleptSince(one.proven.get()) > 0 && !one.lease.Valid()
}

// sit checks that nobody else has the seat, and that its fences grow. b.mu must be held.
func (b *beliefs) sit(mine *belief) {
	w, seat := b.world, mine.lease.Seat()
	if mine.MaxHolders <= 1 || mine.MaxHolders > guard.MaxSeats {
		if seat != 0 {
			w.violate("seat", "%s has seat %d of %s", mine.worker, seat, mine.Key)
		}
		return
	}
	if seat < 1 || seat > mine.MaxHolders {
		w.violate("seat", "%s has seat %d of %s, of %d", mine.worker, seat, mine.Key, mine.MaxHolders)
	}
	id := fmt.Sprint(mine.Key, " ", seat)
	last := b.seats[id]
	switch {
	case last == nil, b.mayBeLost(mine):
	case last.live && last.ctx.Err() == nil && !b.mayBeLost(last):
		w.violate("seat", "%s and %s both have seat %d of %s", last.worker, mine.worker, seat, mine.Key)
	case (last.Fence > mine.Fence || last.Fence == mine.Fence && last.claim != mine.claim) && !w.disturbedSince(mine.asked):
		w.violate("I2", "%s has seat %d of %s with fence %d after %s had it with %d",
			mine.worker, seat, mine.Key, mine.Fence, last.worker, last.Fence)
	}
	b.seats[id] = mine
}

// isFree checks that nothing is left in the node of the calls that have ended.
func (n *node) isFree() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range severalKeys {
		for _, among := range []int{driver.Unlimited, 1} {
			c := driver.Claim{Key: key, ID: "probe", TTL: guard.MinTTL, MaxHolders: among, Queue: driver.YieldToQueue}
			if grant := acquireOf(n.store, c); grant.State != driver.Granted {
				n.world.violate("left", "%s is not free for %d, when all have gone: %+v", key, among, grant)
			}
			releaseOf(n.store, c, driver.After{})
		}
	}
}
