package redlock

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Ledger = (*Locker)(nil)

// Append implements driver.Ledger. After it, a majority has the entry.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	e.Record = bytes.Clone(e.Record) // a slow node may read it after the caller has left
	_, err := askMajority(ctx, l, driver.OpLedger, name, 0, func(ctx context.Context, n driver.Ledger) (struct{}, error) {
		return struct{}{}, n.Append(ctx, name, e, keep)
	})
	return err
}

// EntriesOf implements driver.Ledger. It returns the entries of a majority, so it has all that were
// appended before.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	return readEach(ctx, l, driver.OpLedger, names, 0, func(ctx context.Context, of driver.Ledger) ([][]driver.Entry, error) {
		return of.EntriesOf(ctx, names, n)
	}, func(a, b []driver.Entry) []driver.Entry { return driver.Newest(n, a, b) })
}

// CountersOf implements driver.Ledger. A counter is that of the node where it is highest.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	return readEach(ctx, l, driver.OpLedger, names, 0, func(ctx context.Context, of driver.Ledger) ([]int64, error) {
		return of.CountersOf(ctx, names, counters)
	}, func(a, b int64) int64 { return max(a, b) })
}

// Raise implements driver.Ledger. After it, the counter is at least as high on a majority. If
// several calls raise it to the same number at the same time, it is possible that none of them
// gets a smaller previous value.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	before, err := askMajority(ctx, l, driver.OpLedger, name, 0, func(ctx context.Context, n driver.Ledger) (int64, error) {
		return n.Raise(ctx, name, counter, to)
	})
	if err != nil {
		return 0, err
	}
	return slices.Max(before), nil
}
