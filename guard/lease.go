package guard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Lease is a granted claim on a key. The Guard renews it until it is released. It is safe for
// concurrent use.
type Lease struct {
	holder *holder
	ctx    *leaseContext
	role   leaseRole
	end    func() // ends the Context of a joined lease
}

// A leaseRole says what releasing a Lease does.
type leaseRole uint8

const (
	leaseOwned  leaseRole = iota // the lease is released
	leaseFound                   // nothing happens: it belongs to the call around it
	leaseJoined                  // its Context ends: the lease belongs to another call
)

// Key returns the key, as it was given to Do or Acquire.
func (l *Lease) Key() string { return l.holder.key }

// Name returns the kind of work, see WithName.
func (l *Lease) Name() string { return l.holder.set.name }

// ID returns the random ID by which the store knows the lease. Leases that follow each other on a
// key in this process, without the store, have the same ID.
func (l *Lease) ID() string { return l.holder.storeLease.claim.ID }

// Owner returns the owner of the lease, see WithOwner.
func (l *Lease) Owner() string { return l.holder.owner }

// Fence returns the lease's fencing token: a number larger than that of every earlier holder of
// the key. A resource that remembers the highest fence it has seen can refuse a holder that was
// paused, has lost the lease, and does not know it yet. Register the fence when the work first
// reads the resource, and check it when the work writes: see the package documentation.
//
// Of holders that have the key together, a later one can have the smaller fence: see WithShared
// and WithLimit. No two of them have the same, except for owners (WithOwner) and on
// backend/redlock.
//
// It grows once DoAll or AcquireAll, called with a context of the lease, has joined it: see there.
// In DoAll, it is that of all its keys, or 0 if each of them has its own.
func (l *Lease) Fence() uint64 { return fenceOf(l.holder, l.ctx.others()) }

// fenceOf returns the fence of a lease: that of its key, or that of several keys. While the fences
// of several keys are raised, it is the smallest: the store knows it for each of them. It is 0 if
// each key has its own.
func fenceOf(h *holder, others []*holder) uint64 {
	fence := h.fence.Load()
	if len(others) == 0 {
		return fence
	}
	if h.set.maxHolders > 1 || sharesKey(others) {
		return 0
	}
	for _, other := range others {
		fence = min(fence, other.fence.Load())
	}
	return fence
}

// Seat returns which of the seats of the key the lease has, from 1 to the n of WithLimit. No other
// holder has the same seat at the same time. A seat can be the number of a licence, a port or an
// API key. It is 0 without WithLimit, and if n is more than MaxSeats.
func (l *Lease) Seat() int { return l.holder.storeLease.seat }

// Claims returns the claim by which the store knows the lease, with its fence. Its key has the
// namespace. In DoAll, the claims of all its keys follow. It is for functions of a backend, such as
// postgres.Locker.CheckFence, and for keys that have a fence each.
func (l *Lease) Claims() []driver.Claim {
	claims := []driver.Claim{l.holder.claim()}
	for _, h := range l.ctx.others() {
		claims = append(claims, h.claim())
	}
	return claims
}

// Seats returns the seat that the lease has of the key of each of its Claims: see Seat.
func (l *Lease) Seats() []int {
	seats := []int{l.Seat()}
	for _, h := range l.ctx.others() {
		seats = append(seats, h.storeLease.seat)
	}
	return seats
}

// Context returns the lease's context. It ends with the context that was given to Acquire, and
// when the lease is lost (its cause is then a *LostError), released (ErrReleased), or revoked by
// Close (*ClosedError).
func (l *Lease) Context() context.Context { return l.ctx }

// Valid reports whether the lease is still valid. It reads the clock and does not ask the store.
// Call it right before a side effect: after a process was paused, the context may not have ended
// yet although the lease has. False is final. In DoAll, it is about the leases of all its keys.
func (l *Lease) Valid() bool {
	return l.holder.valid() && !slices.ContainsFunc(l.ctx.others(), func(h *holder) bool { return !h.valid() })
}

// ValidUntil returns until when the lease is valid if it is not renewed, by the clock of this
// process: it bounds what must not go on after the lease, such as a statement_timeout. Renewals
// move it. It is at most the end of WithMaxHold, and WithMargin is taken off. Once the lease has
// ended, it is the zero Time, as Valid is false. In DoAll, it is the earliest of all its keys.
func (l *Lease) ValidUntil() time.Time {
	if !l.Valid() {
		return time.Time{}
	}
	until := l.holder.end()
	for _, h := range l.ctx.others() {
		until = min(until, h.end())
	}
	return l.holder.guard.clock.Time(until)
}

// MaxRecord is the longest record of a done marker in bytes.
const MaxRecord = driver.MaxRecord

// SetRecord sets the record that the done marker of WithOnce will keep. Later callers find it in
// DoneError.Record. The Lease keeps record: do not change it afterwards. Without WithOnce it has
// no effect. A record longer than MaxRecord is a *SettingError, and the previous record stays.
func (l *Lease) SetRecord(record []byte) error {
	if len(record) > MaxRecord {
		return &SettingError{
			Setting: "SetRecord", Value: fmt.Sprintf("%d bytes", len(record)),
			Reason: fmt.Sprintf("must be at most %d bytes", MaxRecord),
		}
	}
	l.holder.guard.mu.Lock()
	defer l.holder.guard.mu.Unlock()
	l.holder.record = record
	return nil
}

// DiscardMarker makes the run leave no done marker even if it returns nil or is completed
// (Complete), so that the work for its key can run again. Without WithOnce it has no effect.
func (l *Lease) DiscardMarker() {
	l.holder.guard.mu.Lock()
	defer l.holder.guard.mu.Unlock()
	l.holder.discard = true
}

// Run calls f with ctx, which must be derived from the lease's Context, and reports it to hooks
// like a run of Do. It does not release the lease. It returns what f returned, inside ErrLost or
// ErrClosed if the lease ended meanwhile. It is for callers that hold a lease for longer than the
// run takes.
func (l *Lease) Run(ctx context.Context, f func(context.Context) error) error {
	r := run{holder: l.holder, hooks: l.holder.set.hooks, ctx: ctx, caller: ctx, joined: l.role != leaseOwned}
	return r.run(f)
}

// Release ends the lease and leaves no done marker. It returns a *LostError if the lease had been
// lost before, and a *StoreError if the store has not answered within 2 s. In that case, the Guard
// keeps trying in the background until the lease would have ended. Release works after ctx has
// ended, but then returns soon. A second call does nothing. Releasing a lease that was joined (see
// Acquire) ends only its Context.
func (l *Lease) Release(ctx context.Context) error {
	return l.endLease(ctx, releaseOptions{})
}

// Complete is Release for work that is done: it leaves the done marker of WithOnce, with the
// record of SetRecord. It waits for the store's answer until the lease would end. If the marker
// may be missing, the error is a *MarkerError. Without WithOnce it is Release.
func (l *Lease) Complete(ctx context.Context) error {
	return l.endLease(ctx, releaseOptions{complete: true, run: ctx})
}

func (l *Lease) endLease(ctx context.Context, end releaseOptions) error {
	switch l.role {
	case leaseFound:
		return nil
	case leaseJoined:
		l.end()
		return nil
	case leaseOwned:
	}
	var r release
	r.begin(l.holder, end)
	return r.end(ctx)
}

type leaseKey struct{}

// leaseContext is a context that carries a holder. It is the value of leaseKey itself, so that the
// leases of the contexts around it can be found through it.
type leaseContext struct {
	context.Context
	holder *holder
	rest   *[]*holder // the holders of the other keys of DoAll, or nil
}

func (c *leaseContext) others() []*holder {
	if c.rest == nil {
		return nil
	}
	return *c.rest
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

// Fence returns the fence of the lease under which ctx runs, or 0 if there is none. It also returns
// 0 in a DoAll with WithShared or WithLimit: each key has a fence of its own then. See Lease.Fence.
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

func sameStore(a, b *Guard) bool {
	return a == b || a.comparable && b.comparable && a.locker == b.locker
}
