package reentrant

import (
	"context"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Append implements driver.Ledger.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	return l.store.Append(ctx, name, e, keep)
}

// Entries implements driver.Ledger.
func (l *Locker) Entries(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	return l.store.Entries(ctx, name, n)
}

// Raise implements driver.Ledger.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return l.store.Raise(ctx, name, counter, to)
}
