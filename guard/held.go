package guard

import (
	"slices"
	"time"
)

// A HeldLease is a lease that a Guard holds.
type HeldLease struct {
	Key   string    `json:"key"` // as it was given to Do or Acquire
	Name  string    `json:"name,omitempty"`
	ID    string    `json:"id"`
	Owner string    `json:"owner,omitempty"` // "" unless WithOwner named one
	Fence uint64    `json:"fence"`
	Seat  int       `json:"seat,omitempty"`
	Since time.Time `json:"since"` // by the clock of this process
}

// Held returns the leases that the Guard has held for at least that long, the longest first. It
// returns at most n of them, and more is how many others there are. It does not ask the store.
// Leases of an adapter's own (Auxiliary) are left out.
func (a Adapter) Held(atLeast time.Duration, n int) (held []HeldLease, more int) {
	g := a.guard
	held = g.heldSince(g.clock.Now() - atLeast)
	slices.SortFunc(held, func(a, b HeldLease) int { return a.Since.Compare(b.Since) })
	n = min(max(n, 0), len(held))
	return held[:n:n], len(held) - n
}

// heldSince returns the leases that were granted at an instant or before.
func (g *Guard) heldSince(at time.Duration) (held []HeldLease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.schedule.heap {
		for h := t.holder; h != nil; h = h.next {
			if h.granted > at || h.over.Load() || h.set.auxiliary {
				continue
			}
			l := HeldLease{
				Key: h.key, Name: h.set.name, ID: t.claim.ID, Fence: h.fence.Load(), Seat: t.claim.Seat, Since: g.clock.Time(h.granted),
			}
			if h.owner != l.ID {
				l.Owner = h.owner
			}
			held = append(held, l)
		}
	}
	return held
}
