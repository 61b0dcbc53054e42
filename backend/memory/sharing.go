package memory

import (
	"container/heap"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// entry returns the state of the key, or nil if it is free and no claim is wanted. It forgets
// holders whose lease has ended.
func (l *Locker) entry(key string, now time.Time) *entry {
	e := l.keys[key]
	if e == nil {
		return nil
	}
	e.Expire(now)
	return e
}

// find returns the holder with that ID, or nil. e may be nil.
func (e *entry) find(id string) *holders.Holder {
	if e == nil {
		return nil
	}
	return e.Find(id)
}

// admits reports whether the claim, which holds nothing, would be granted. e may be nil.
func (e *entry) admits(c driver.Claim) bool { return e == nil || !e.done && e.Admits(c) }

// isShared reports whether further claims may be granted: nobody holds the key, or nobody alone. e
// may be nil.
func (e *entry) isShared() bool { return e == nil || e.IsShared() }

// extend has a holder's lease end at another time.
func (l *Locker) extend(e *entry, h *holders.Holder, ends time.Time) {
	h.Ends = ends
	l.plan(e)
}

// remove ends the lease of the holder with that ID, or forgets that the claim is wanted. e may be
// nil.
func (l *Locker) remove(e *entry, id string) {
	if e == nil {
		return
	}
	e.Remove(id)
	l.plan(e)
}

// plan has an entry end with what is in it, or now if nothing is.
func (l *Locker) plan(e *entry) {
	if e.IsFree() {
		delete(l.keys, e.key)
		heap.Remove(&l.expiry, e.index)
		return
	}
	e.ends = e.Ends()
	heap.Fix(&l.expiry, e.index)
}
