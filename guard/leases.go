package guard

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Leases are leases on several keys, which were acquired together. They are safe for concurrent
// use.
type Leases struct {
	guard  *Guard
	set    *settings
	leases []*Lease
	ctx    context.Context
	end    func()
}

// holds returns those of all of the keys.
func (l *Leases) holds() []*hold {
	all := make([]*hold, len(l.leases))
	for i, lease := range l.leases {
		all[i] = lease.hold
	}
	return all
}

// Keys returns the keys, sorted, each once.
func (l *Leases) Keys() []string {
	keys := make([]string, len(l.leases))
	for i, lease := range l.leases {
		keys[i] = lease.Key()
	}
	return keys
}

// Fence returns the fence of all of the keys, see Lease.Fence. It is 0 if there are several, and
// if others may hold one of them meanwhile (WithShared, WithLimit): each key then has its own
// fence, see Claims.
func (l *Leases) Fence() uint64 { return fenceOf(l.leases[0].hold, l.holds()[1:]) }

// Claims returns the claims of all of the leases, with their fences, see Lease.Claims.
func (l *Leases) Claims() (claims []Claim) {
	for _, lease := range l.leases {
		claims = append(claims, lease.Claims()...)
	}
	return claims
}

// Context returns a context that ends with the lease of any of the keys, see Lease.Context.
func (l *Leases) Context() context.Context { return l.ctx }

// Valid reports whether all of the leases are valid, see Lease.Valid.
func (l *Leases) Valid() bool {
	return !slices.ContainsFunc(l.leases, func(lease *Lease) bool { return !lease.Valid() })
}

// Release ends all of the leases, see Lease.Release. It returns the errors, joined.
func (l *Leases) Release(ctx context.Context) error {
	defer l.end()
	own := slices.DeleteFunc(slices.Clone(l.leases), func(lease *Lease) bool { return lease.joined != nil })
	return l.guard.releaseAll(ctx, l.set, own)
}

// releaseAll releases the leases at once, and returns all errors. A release without an answer must
// not hide the loss of another lease.
func (g *Guard) releaseAll(ctx context.Context, set *settings, leases []*Lease) error {
	requests := g.releaseTogether(ctx, set, len(leases))
	results := make([]error, len(leases))
	each(len(leases), func(i int) {
		// the result if endLease does not return
		results[i] = driver.NewStoreError("", driver.OpRelease, leases[i].Key(), errAborted)
		results[i] = leases[i].endLease(ctx, ending{first: requests[i]})
	})
	return errors.Join(results...)
}
