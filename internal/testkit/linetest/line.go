// Package linetest has a store whose calls a test can delay, refuse and freeze: a process's line to
// the store.
package linetest

import (
	"context"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Line is one process's way to a store in memory that several processes may share. It is safe for
// concurrent use if Ask is.
type Line struct {
	*memory.Locker
	// Ask comes before each call. If it returns an error, that is the call's, and the store is not
	// asked.
	Ask func(ctx context.Context, c Call) error
}

// A Call is a call on the store.
type Call struct {
	Name string // acquire, renew, release, append, entries, counters, raise
	Op   driver.Op
	Key  string // or the name of the ledger
}

var _ driver.Ledger = Line{}

// TryAcquire implements driver.Locker.
func (l Line) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if err := l.Ask(ctx, Call{"acquire", driver.OpAcquire, c.Key}); err != nil {
		return driver.Answer{}, err
	}
	return l.Locker.TryAcquire(ctx, c)
}

// Renew implements driver.Locker.
func (l Line) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	if err := l.Ask(ctx, Call{"renew", driver.OpRenew, c.Key}); err != nil {
		return false, err
	}
	return l.Locker.Renew(ctx, c)
}

// Release implements driver.Locker.
func (l Line) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if err := l.Ask(ctx, Call{"release", driver.OpRelease, c.Key}); err != nil {
		return false, err
	}
	return l.Locker.Release(ctx, c, after)
}

// Append implements driver.Ledger.
func (l Line) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	if err := l.Ask(ctx, Call{"append", driver.OpLedger, name}); err != nil {
		return err
	}
	return l.Locker.Append(ctx, name, e, keep)
}

// Raise implements driver.Ledger.
func (l Line) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	if err := l.Ask(ctx, Call{"raise", driver.OpLedger, name}); err != nil {
		return 0, err
	}
	return l.Locker.Raise(ctx, name, counter, to)
}

// EntriesOf implements driver.Ledger.
func (l Line) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	if err := l.Ask(ctx, Call{"entries", driver.OpLedger, names[0]}); err != nil {
		return nil, err
	}
	return l.Locker.EntriesOf(ctx, names, n)
}

// CountersOf implements driver.Ledger.
func (l Line) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	if err := l.Ask(ctx, Call{"counters", driver.OpLedger, names[0]}); err != nil {
		return nil, err
	}
	return l.Locker.CountersOf(ctx, names, counters)
}
