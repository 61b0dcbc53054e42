package both

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var errNoLedger = errors.New("it has no ledger")

// eachLedger calls f with the ledger of each side, until a side fails.
func (l *Locker) eachLedger(name string, f func(i int, ledger driver.Ledger) error) error {
	for i, s := range l.sides {
		var err error = &driver.StoreError{Op: driver.OpLedger, Key: name, Kind: driver.KindUnsupported, Err: errNoLedger}
		if ledger, ok := s.Locker.(driver.Ledger); ok {
			err = f(i, ledger)
		}
		if err != nil {
			return s.error(driver.OpLedger, name, err)
		}
	}
	return nil
}

// Append implements driver.Ledger. After it, both sides have the entry.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	return l.eachLedger(name, func(_ int, ledger driver.Ledger) error { return ledger.Append(ctx, name, e, keep) })
}

// EntriesOf implements driver.Ledger. It returns the entries of both sides, each once.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	all := make([][]driver.Entry, len(names))
	return all, l.eachLedger(names[0], func(_ int, ledger driver.Ledger) error {
		logs, err := ledger.EntriesOf(ctx, names, n)
		for i, log := range logs {
			all[i] = driver.Newest(n, all[i], log)
		}
		return err
	})
}

// CountersOf implements driver.Ledger. A counter is that of the side where it is higher.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	all := make([]int64, len(names))
	return all, l.eachLedger(names[0], func(_ int, ledger driver.Ledger) error {
		values, err := ledger.CountersOf(ctx, names, counters)
		for i, value := range values {
			all[i] = max(all[i], value)
		}
		return err
	})
}

// Raise implements driver.Ledger. It also raises the counter of each side to that of the other, so
// that each side alone knows how far a job has come.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	var before [2]int64
	err := l.eachLedger(name, func(i int, ledger driver.Ledger) (err error) {
		before[i], err = ledger.Raise(ctx, name, counter, to)
		return err
	})
	was := max(before[old], before[next])
	if err == nil {
		err = l.eachLedger(name, func(i int, ledger driver.Ledger) (err error) {
			if max(before[i], to) < was {
				_, err = ledger.Raise(ctx, name, counter, was)
			}
			return err
		})
	}
	return was, err
}
