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
	others []*hold // all but the last
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
	own := slices.DeleteFunc(slices.Clone(l.leases), func(lease *Lease) bool { return lease.role != leaseOwned })
	return l.guard.releaseAll(ctx, own)
}

// releaseAll releases the leases at once, and returns all errors. A release without an answer must
// not hide the loss of another lease.
func (g *Guard) releaseAll(ctx context.Context, leases []*Lease) error {
	releases, results := make([]release, len(leases)), make([]error, len(leases))
	for i, l := range leases {
		defer releases[i].finish()
		l.hold.beginRelease(ending{}, &releases[i])
	}
	g.releaseBatch(ctx, releases)
	each(len(leases), func(i int) {
		// the result if a call does not return
		results[i] = driver.NewStoreError("", driver.OpRelease, leases[i].Key(), errAborted)
		results[i] = releases[i].end(ctx)
	})
	return errors.Join(results...)
}

// releaseBatch sends the releases in one call to the store, if the Locker can. It leaves those
// without an answer to release.end.
func (g *Guard) releaseBatch(ctx context.Context, releases []release) {
	l, ok := driver.Ability[driver.BatchAcquirer](g.locker)
	if !ok {
		return
	}
	var sent []*release
	var claims []Claim
	for i := range releases {
		if r := &releases[i]; r.state == releaseSending {
			sent, claims = append(sent, r), append(claims, r.claim)
		}
	}
	if len(sent) == 0 {
		return
	}
	errs, held := make([]error, len(sent)), make([]bool, len(sent))
	for i := range errs {
		errs[i] = errUnreported
	}
	g.callBatch(ctx, releaseTimeout(sent[0].claim.TTL), releaseGrace, func(ctx context.Context) {
		l.ReleaseBatch(ctx, claims, func(i int, h bool, err error) { held[i], errs[i] = h, err })
	})
	for i, r := range sent {
		if err := r.noteCall(r.at, errs[i]); err == nil {
			r.answered(held[i], nil)
		}
	}
}
