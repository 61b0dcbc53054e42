// Package holders decides which claims may hold a key, by the rules of Description.Shares, for
// backends that keep the holders of a key in a list. Backends may store a Key as JSON.
package holders

import (
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Key is the claims that hold a key, or keep it by their minimum hold, and the wanted claim. If
// Done is set, the work is done: the key has one holder, the claim that has left the marker.
type Key struct {
	Holders []Holder `json:"holders,omitempty"`
	Wanted  Wanted   `json:"wanted,omitzero"`
	Done    bool     `json:"-"`
	Record  []byte   `json:"-"` // of the marker
}

// A Holder is a claim that was granted.
type Holder struct {
	ID         string `json:"id"`
	MaxHolders int    `json:"max_holders"`
	// Fence is in use. First and Last are the smallest and the largest fence that a lease under the
	// claim may have now: readers of one process that have one claim have a fence each, and a
	// hand-off inside of a process goes on to the next reserved one.
	Fence    uint64    `json:"fence"`
	First    uint64    `json:"first"`
	Last     uint64    `json:"last"`
	Seat     int       `json:"seat,omitempty"`
	Label    string    `json:"label,omitempty"`
	Released bool      `json:"released,omitempty"` // its minimum hold has not passed
	Ends     time.Time `json:"ends"`
}

// Wanted is the claim for which others are refused. Its ID is empty if there is none.
type Wanted struct {
	ID         string    `json:"id"`
	MaxHolders int       `json:"max_holders"`
	Until      time.Time `json:"until"`
}

// MaxHolders returns how many may hold the key of the claim at a time.
func MaxHolders(c driver.Claim) int { return max(c.MaxHolders, 1) }

// Expire forgets holders whose lease has ended, a marker that has expired, and the wanted claim if
// its time has passed.
func (k *Key) Expire(now time.Time) {
	k.Holders = slices.DeleteFunc(k.Holders, func(h Holder) bool { return !now.Before(h.Ends) })
	if !now.Before(k.Wanted.Until) {
		k.Wanted = Wanted{}
	}
	if len(k.Holders) == 0 {
		k.Done, k.Record = false, nil
	}
}

// Find returns the holder with that ID, or nil.
func (k *Key) Find(id string) *Holder {
	for i := range k.Holders {
		if k.Holders[i].ID == id {
			return &k.Holders[i]
		}
	}
	return nil
}

// Admits reports whether the claim, which holds nothing, would be granted.
func (k *Key) Admits(c driver.Claim) bool {
	if k.KeepsAway(c) {
		return false
	}
	most := MaxHolders(c)
	for i := range k.Holders {
		most = min(most, k.Holders[i].MaxHolders)
	}
	return len(k.Holders) < most
}

// IsShared reports whether further claims may be granted: nobody holds the key, or nobody alone.
func (k *Key) IsShared() bool {
	return !slices.ContainsFunc(k.Holders, func(h Holder) bool { return h.MaxHolders == 1 })
}

// KeepsAway reports whether another claim is wanted, for which this one is refused.
func (k *Key) KeepsAway(c driver.Claim) bool {
	return k.Wanted.ID != "" && k.Wanted.ID != c.ID && MaxHolders(c) > k.Wanted.MaxHolders
}

// Refuse returns the answer to a claim that is not admitted. It makes the claim the wanted one if
// the claim waits.
func (k *Key) Refuse(c driver.Claim, now time.Time) driver.Answer {
	if k.KeepsAway(c) {
		return driver.Answer{
			State: driver.Busy, Reason: driver.HeldShared, Left: k.Wanted.Until.Sub(now), Holder: k.Wanted.ID,
		}
	}
	byEnd := func(a, b Holder) int { return a.Ends.Compare(b.Ends) }
	first := slices.MinFunc(k.Holders, byEnd)
	if MaxHolders(c) == 1 { // all must have gone
		first = slices.MaxFunc(k.Holders, byEnd)
	}
	grant := driver.Answer{
		State: driver.Busy, Left: first.Ends.Sub(now), Label: first.Label, Holder: first.ID,
	}
	if first.MaxHolders > 1 {
		grant.Reason = driver.HeldShared
	}
	w := k.Wanted
	switch {
	case c.Queue.Waits() && first.MaxHolders > 1 && (w.ID == "" || w.ID == c.ID || MaxHolders(c) < w.MaxHolders):
		k.Wanted = Wanted{c.ID, MaxHolders(c), now.Add(driver.WantedFor(c.TTL))}
		grant.Reason = driver.HeldForClaim
	case w.ID == c.ID: // another claim has the key alone by now
		k.Wanted = Wanted{}
	}
	return grant
}

// Add adds a claim that is admitted, under the fence of the grant. It sets the grant's seat.
func (k *Key) Add(c driver.Claim, grant *driver.Answer, ends time.Time) {
	grant.Seat = k.seat(c)
	if k.Wanted.ID == c.ID {
		k.Wanted = Wanted{}
	}
	k.Holders = append(k.Holders, Holder{
		ID: c.ID, MaxHolders: MaxHolders(c), Fence: grant.Fence, First: grant.Fence,
		Last: grant.Fence + uint64(max(grant.Reserved, 0)), Seat: grant.Seat, Label: c.Label, Ends: ends,
	})
}

// Use notes that the holder uses a fence, and has reserved some above it. Smaller fences are in use
// as well if the claim is one of readers.
func (h *Holder) Use(fence uint64, reserve int) {
	if fence <= h.Fence {
		return
	}
	h.Fence = fence
	h.Last = max(h.Last, fence+uint64(max(reserve, 0)))
	if h.MaxHolders != driver.Unlimited {
		h.First = fence
	}
}

// seat returns the seat of a claim that is granted: the smallest that no holder has, or 0 if the
// claim has no seat.
func (k *Key) seat(c driver.Claim) int {
	if MaxHolders(c) == 1 || MaxHolders(c) > driver.MaxSeats {
		return 0
	}
	for seat := 1; ; seat++ {
		if !slices.ContainsFunc(k.Holders, func(h Holder) bool { return h.Seat == seat }) {
			return seat
		}
	}
}

// Remove ends the lease of the holder with that ID, or forgets that the claim is wanted.
func (k *Key) Remove(id string) {
	k.Holders = slices.DeleteFunc(k.Holders, func(h Holder) bool { return h.ID == id })
	if k.Wanted.ID == id {
		k.Wanted = Wanted{}
	}
}

// IsFree reports whether nothing is left: no claim holds the key, and none is wanted.
func (k *Key) IsFree() bool { return len(k.Holders) == 0 && k.Wanted.ID == "" }

// Ends returns when all leases have ended, and the wanted claim is not wanted any more.
func (k *Key) Ends() time.Time {
	ends := k.Wanted.Until
	for i := range k.Holders {
		if k.Holders[i].Ends.After(ends) {
			ends = k.Holders[i].Ends
		}
	}
	return ends
}
