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
// It takes all keys or none. Calls cannot block each other forever, in whatever order they name
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
	r := run{holder: l.holders[last], others: l.holders[:last:last], hooks: l.set.hooks, ctx: l.ctx, caller: ctx}
	return r.run(f)
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
	return newLeases(s)
}

// Leases are leases on several keys, which were acquired together. They are safe for concurrent
// use.
type Leases struct {
	guard   *Guard
	set     *settings
	leases  []*Lease
	holders []*holder // the holders of the leases
	ctx     context.Context
	end     func()
}

// newLeases returns what was acquired. The maximum hold begins now.
func newLeases(s *multiAcquire) (*Leases, error) {
	l := &Leases{guard: s.guard, set: s.set, ctx: s.ctx, end: func() {}}
	for _, k := range s.keys {
		l.leases, l.holders = append(l.leases, k.lease), append(l.holders, k.lease.holder)
	}
	if err := s.guard.shareFence(s.ctx, l.holders, s.deadline); err != nil {
		return nil, err
	}
	now := s.guard.clock.Now()
	for i, h := range l.holders {
		if s.keys[i].lease.role == leaseOwned {
			h.endAfter(s.set.maxHold, now)
		}
		joined, end := h.joined(l.ctx)
		c := &leaseContext{Context: joined, holder: h}
		if last := len(l.holders) - 1; i == last {
			rest := l.holders[:last:last]
			c.rest = &rest
		}
		l.ctx = c
		rest := l.end
		l.end = func() { end(); rest() }
	}
	for _, k := range s.keys {
		k.lease = nil
	}
	return l, nil
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
