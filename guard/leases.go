package guard

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// DoAll runs f while it holds all the keys, and releases them when f has ended. It returns the
// errors of Do. An ErrBusy names one of the keys that were busy.
//
// It takes all keys or none. Calls cannot block each other for ever, in whatever order they name
// their keys: a call that waits for a key (WithWait) holds only keys that are smaller. That does
// not cover a Do inside of DoAll, or inside of Do, for a further key.
//
// The context of f ends with the lease of any of the keys. f has one fence: it is larger than
// every earlier fence of each key, and the store knows it for each of them. A key that ctx holds
// already is joined: its lease gets that fence, too, and keeps it after DoAll. If DoAll fails, it
// may get the fence with a later renewal. So an outer run must read its fence (Fence) again after
// DoAll.
//
// If others may hold one of the keys meanwhile (WithShared, WithLimit), no number is the fence of
// f alone for all keys. Each key then has the fence of its own lease, and so has a key that was
// joined. Fence returns 0. Lease.Claims has the fence and the seat for each key.
//
// Options are those of Do, without WithOnce and WithMinHold. On one Redis, free keys cost one
// round trip, and their release another.
func (g *Guard) DoAll(ctx context.Context, keys []string, f func(context.Context) error, opts ...Option) (err error) {
	if f == nil {
		return errNoFunction
	}
	l, err := g.AcquireAll(ctx, keys, opts...)
	if err != nil {
		return err
	}
	defer func() {
		released := l.Release(ctx)
		var lost *LostError
		if errors.As(released, &lost) && !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
			if !hasEnded(ctx) {
				err = driver.HideContext(err) // the context that f saw ended was ours
			}
			with := *lost
			with.Err, with.ran = err, true
			err = &with
		}
	}()
	last := len(l.holders) - 1
	r := run{holder: l.holders[last], others: l.holders[:last:last], hooks: l.set.hooks, caller: ctx}
	return r.run(l.ctx, f)
}

// AcquireAll is to DoAll what Acquire is to Do: the keys are held until Release.
func (g *Guard) AcquireAll(ctx context.Context, keys []string, opts ...Option) (*Leases, error) {
	s, err := g.newMultiAcquire(ctx, keys, opts)
	if err != nil {
		return nil, err
	}
	defer s.abandon() // unless all are held
	if err := s.acquire(); err != nil {
		return nil, err
	}
	return s.leases()
}

// Leases are leases on several keys, which were acquired together. They are safe for concurrent
// use.
type Leases struct {
	guard   *Guard
	set     *settings
	leases  []*Lease
	holders []*holder // of the leases
	ctx     context.Context
	end     func()
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
func (l *Leases) Fence() uint64 { return fenceOf(l.holders[0], l.holders[1:]) }

// Claims returns the claims of all of the leases, with their fences, see Lease.Claims.
func (l *Leases) Claims() (claims []driver.Claim) {
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
		releases[i].begin(l.holder, releaseOptions{})
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
	var claims []driver.Claim
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
