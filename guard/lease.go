package guard

import (
	"context"
	"fmt"
)

// A Lease is a granted claim on a key. The Guard renews it until it is released. It is safe for
// concurrent use.
type Lease struct {
	hold *hold
	ctx  context.Context
	// joined leases are somebody else's: releasing one changes nothing.
	joined bool
}

// Key returns the key, as it was given to Do or Acquire.
func (l *Lease) Key() string { return l.hold.key }

// Name returns the kind of work, see WithName.
func (l *Lease) Name() string { return l.hold.set.name }

// Owner returns who holds the lease, see WithOwner.
func (l *Lease) Owner() string { return l.hold.claim.Owner }

// Fence returns the lease's fence: a number larger than that of every earlier holder of the key. Write
// it beside what the work writes, and have the resource refuse a lower one: that keeps out a holder
// which was paused, lost the lease, and does not know it yet.
func (l *Lease) Fence() uint64 { return l.hold.claim.Fence }

// Context returns the lease's context: the one that was given to Acquire, which ends also when the
// lease is lost (its cause is then a *LostError), released (ErrReleased), or taken back by Close
// (*ClosedError).
func (l *Lease) Context() context.Context { return l.ctx }

// Valid reports whether the lease can still be believed in. It reads the clock and does not ask the
// store. Ask it right before a side effect: after a process was paused, its context may not have ended
// yet although the lease has. False is final.
func (l *Lease) Valid() bool { return l.hold.valid() }

// MaxRecord is the longest record of a done marker in bytes.
const MaxRecord = 16 << 20

// SetRecord sets what the done marker of WithOnce will keep: the answer that later callers find in
// DoneError.Record. The Lease keeps record; do not change it afterwards. Without WithOnce it has no
// effect. A record longer than MaxRecord is a *SettingError, and the one that was set before stands.
func (l *Lease) SetRecord(record []byte) error {
	if len(record) > MaxRecord {
		return &SettingError{Setting: "SetRecord", Value: fmt.Sprintf("%d bytes", len(record)), Reason: fmt.Sprintf("must be at most %d bytes", MaxRecord)}
	}
	l.hold.guard.mu.Lock()
	defer l.hold.guard.mu.Unlock()
	l.hold.record = record
	return nil
}

// Forget has the run leave no done marker although it returns nil, or is finished (Finish): its key can be run again. Without WithOnce it has no effect.
func (l *Lease) Forget() {
	l.hold.guard.mu.Lock()
	defer l.hold.guard.mu.Unlock()
	l.hold.forget = true
}

// Run calls f with ctx, which must be derived from the lease's Context, and tells the hooks of it as of a run of Do. It does not give the
// lease back. It returns what f returned, inside of ErrLost if the lease was lost meanwhile. It is for those who hold a lease for longer than the
// run itself takes.
func (l *Lease) Run(ctx context.Context, f func(context.Context) error) error {
	return l.hold.run(ctx, f, l.joined)
}

// Release gives the lease back and leaves no done marker. It returns a *LostError if the lease had been
// lost before, and a *StoreError if the store could not be told: then the Guard goes on trying in
// the background until the lease would have ended. It does not depend on ctx being alive, but returns
// shortly after it has ended. A second call does nothing, nor does one on a lease that was joined
// (see Acquire).
func (l *Lease) Release(ctx context.Context) error {
	return l.giveBack(ctx, ending{})
}

// Finish is Release for work that is done: it leaves the marker of WithOnce, with the record of
// SetRecord. Without WithOnce it is Release.
func (l *Lease) Finish(ctx context.Context) error {
	return l.giveBack(ctx, ending{finished: true, run: ctx})
}

func (l *Lease) giveBack(ctx context.Context, end ending) error {
	if l.joined {
		return nil
	}
	back := l.hold.giveBack(ctx, end)
	back.report()
	return back.err
}
