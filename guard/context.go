package guard

import (
	"cmp"
	"context"
)

type leaseKey struct{}

// leaseContext is a context that carries a hold. It is the value of leaseKey itself, so that the
// leases of the contexts around it can be found through it.
type leaseContext struct {
	context.Context
	hold   *hold
	joined *joining // of a lease that is found through it, or nil: alone
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// FromContext returns the lease under which ctx runs: the innermost one, if there are several. It
// returns false if there is none. Releasing it does nothing: the call that acquired it does that.
func FromContext(ctx context.Context) (*Lease, bool) {
	c, ok := ctx.Value(leaseKey{}).(*leaseContext)
	if !ok {
		return nil, false
	}
	return &Lease{hold: c.hold, ctx: c, joined: cmp.Or(c.joined, &alone)}, true
}

// Fence returns the fence of the lease under which ctx runs, or 0 if there is none. See
// Lease.Fence.
func Fence(ctx context.Context) uint64 {
	if c, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		return c.hold.fence.Load()
	}
	return 0
}

// holding returns the hold of the store's key under which ctx runs, or nil. It is not released
// yet, but it may have been lost.
func (g *Guard) holding(ctx context.Context, key string) *hold {
	for {
		c, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil
		}
		if h := c.hold; h.tenure.claim.Key == key && sameStore(h.guard, g) && !h.isReleased() {
			return h
		}
		ctx = c.Context
	}
}

// sameStore reports whether two Guards have the same Locker.
func sameStore(a, b *Guard) bool {
	return a == b || a.comparable && b.comparable && a.locker == b.locker
}

func (h *hold) isReleased() bool {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	return h.released != nil
}
