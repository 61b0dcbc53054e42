package guard

import "context"

type leaseKey struct{}

// leaseContext is a context that carries a holder. It is the value of leaseKey itself, so that the
// leases of the contexts around it can be found through it.
type leaseContext struct {
	context.Context
	holder *holder
	all    *Leases // of DoAll: those of all its keys, of which holder has the last; or nil
}

// others returns the holders of DoAll's other keys.
func (c *leaseContext) others() []*holder {
	if c.all == nil {
		return nil
	}
	last := len(c.all.holders) - 1
	return c.all.holders[:last:last]
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// leaseOf returns the innermost lease context of ctx, or nil.
func leaseOf(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseKey{}).(*leaseContext)
	return c
}

// FromContext returns the lease under which ctx runs: the innermost one, if there are several. It
// returns false if there is none. Releasing it does nothing: the call that acquired it does that.
func FromContext(ctx context.Context) (*Lease, bool) {
	c := leaseOf(ctx)
	if c == nil {
		return nil, false
	}
	return &Lease{holder: c.holder, ctx: c, role: leaseFound}, true
}

// Fence returns the fence of the lease under which ctx runs, or 0 if there is none. In a DoAll
// whose keys others may hold meanwhile, each key has its own, and Fence returns 0. See
// Lease.Fence.
func Fence(ctx context.Context) uint64 {
	if c := leaseOf(ctx); c != nil {
		return fenceOf(c.holder, c.others())
	}
	return 0
}

// holding returns the holder of the store's key under which ctx runs, or nil. It is not released
// yet, but it may have been lost.
func (g *Guard) holding(ctx context.Context, key string) *holder {
	for c := leaseOf(ctx); c != nil; c = leaseOf(c.Context) {
		if h := c.holder; h.storeLease.claim.Key == key && sameStore(h.guard, g) && !h.isReleased() {
			return h
		}
	}
	return nil
}

// sameStore reports whether two Guards have the same Locker.
func sameStore(a, b *Guard) bool {
	return a == b || a.comparable && b.comparable && a.locker == b.locker
}
