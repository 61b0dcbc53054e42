package holders

import (
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Effect is what a decision has changed in a key. A backend that keeps keys in a server writes
// the key, unless it is Nothing.
type Effect uint8

const (
	Nothing Effect = iota
	Changed        // the key has changed, but no waiter may be granted it
	Freed          // a waiter may be granted the key
	Granted        // a claim was granted the key
	Joined         // a claim was granted the key, and a waiter may be granted it as well
)

// Acquire decides a claim. The caller has called Expire. last is the last fence that was issued or
// reserved; a grant raises it. known means that the store cannot have lost a later one.
func (k *Key) Acquire(c driver.Claim, now time.Time, last *uint64, known bool) (driver.Answer, Effect) {
	h := k.Find(c.ID)
	switch {
	case k.Done:
		marker := &k.Holders[0]
		return driver.Answer{
			State: driver.Done, Left: marker.Ends.Sub(now), Record: k.Record, Label: marker.Label,
		}, Nothing
	case h != nil && !h.Released:
		h.Ends = now.Add(c.TTL)
		return driver.Answer{State: driver.Granted, Fence: h.Fence, Seat: h.Seat, Held: true}, Changed
	case h != nil || !k.Admits(c):
		wanted := k.Wanted
		refused := k.Refuse(c, now)
		if wanted == k.Wanted {
			return refused, Nothing
		}
		return refused, Changed
	}
	effect := Granted
	if k.Wanted.ID == c.ID && c.MaxHolders > 1 {
		effect = Joined // other claims were refused for this one
	}
	var grant driver.Answer
	grant, *last = Fence(c, *last, known, Clock(now))
	k.Add(c, &grant, now.Add(c.TTL))
	return grant, effect
}

// Renew decides a renewal. It raises last to the last fence that the claim has reserved.
func (k *Key) Renew(c driver.Claim, now time.Time, last *uint64) (held bool, _ Effect) {
	h := k.Find(c.ID)
	if h == nil || h.Released || k.Done {
		return false, Nothing
	}
	h.Ends = now.Add(c.TTL)
	h.Use(c.Fence, c.Fences.Reserve)
	*last = max(*last, h.Last)
	return true, Changed
}

// Release decides a release. It keeps after.Record. If the claim is wanted, it is so no longer.
func (k *Key) Release(c driver.Claim, after driver.After, now time.Time) (held bool, _ Effect) {
	h := k.Find(c.ID)
	switch {
	case h == nil && k.Wanted.ID != c.ID:
		return false, Nothing
	case h == nil: // other claims were refused for this one
		k.Remove(c.ID)
		return false, Freed
	case h.Released: // this release is repeated
		return true, Nothing
	case after.Keep <= 0:
		k.Remove(c.ID)
		return true, Freed
	}
	h.Released, h.Ends = true, now.Add(after.Keep)
	if after.Done && h.MaxHolders == 1 {
		k.Done, k.Record, h.Label = true, after.Record, c.Label
		k.Wanted = Wanted{} // a claim that waits learns that the work is done
	}
	return true, Freed
}

// Break decides what driver.Inspector.Break changes.
func (k *Key) Break(id string, b driver.Break) (broken bool, _ Effect) {
	h := k.Find(id)
	switch {
	case k.Done:
		return false, Nothing
	case b.Now && h != nil:
		k.Remove(id)
		return true, Freed
	case h == nil || h.Released:
		return !b.Now && k.Find(b.ID) != nil, Nothing
	}
	h.ID, h.Label, h.Released = b.ID, b.Label, true
	return true, Changed
}

// Forget removes the done marker.
func (k *Key) Forget() (forgotten bool, _ Effect) {
	if !k.Done {
		return false, Nothing
	}
	k.Holders, k.Done, k.Record = nil, false, nil
	return true, Freed
}

// Show describes the key for driver.Inspector.
func (k *Key) Show(now time.Time) driver.KeyInfo {
	info := driver.KeyInfo{Time: now, Subscribers: -1, Wanted: k.Wanted.ID}
	if k.Done {
		h := k.Holders[0]
		info.Marker = &driver.Marker{Label: h.Label, Left: h.Ends.Sub(now), Size: len(k.Record)}
		return info
	}
	for _, h := range k.Holders {
		info.Holders = append(info.Holders, driver.Holder{
			ID: h.ID, Label: h.Label, Fence: h.Fence, Left: h.Ends.Sub(now), MaxHolders: h.MaxHolders,
			Seat: h.Seat, Kept: h.Released,
		})
	}
	return info
}
