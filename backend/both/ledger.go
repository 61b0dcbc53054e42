package both

import (
	"context"
	"errors"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var errNoLedger = errors.New("it has no ledger")

// ledger returns the ledger of a side.
func (s side) ledger(name string) (driver.Ledger, error) {
	ledger, ok := driver.Ability[driver.Ledger](s.Locker)
	if !ok {
		err := &driver.StoreError{Op: driver.OpLedger, Key: name, Kind: driver.KindUnsupported, Err: errNoLedger}
		return nil, s.error(driver.OpLedger, name, err)
	}
	return ledger, nil
}

// Append implements driver.Ledger. After it, both sides have the entry.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	for _, s := range l.sides {
		ledger, err := s.ledger(name)
		if err != nil {
			return err
		}
		if err := ledger.Append(ctx, name, e, keep); err != nil {
			return s.error(driver.OpLedger, name, err)
		}
	}
	return nil
}

// Entries implements driver.Ledger. It returns the entries of both sides, each once.
func (l *Locker) Entries(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	logs, err := l.EntriesOf(ctx, []string{name}, n)
	if err != nil {
		return nil, err
	}
	return logs[0], nil
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	all := make([][]driver.Entry, len(names))
	for _, s := range l.sides {
		ledger, err := s.ledger(names[0])
		if err != nil {
			return nil, err
		}
		logs, err := ledger.EntriesOf(ctx, names, n)
		if err != nil {
			return nil, s.error(driver.OpLedger, names[0], err)
		}
		for i, log := range logs {
			all[i] = driver.Newest(n, all[i], log)
		}
	}
	return all, nil
}

// CountersOf implements driver.Ledger. A counter is that of the side where it is higher.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	all := make([]int64, len(names))
	for _, s := range l.sides {
		ledger, err := s.ledger(names[0])
		if err != nil {
			return nil, err
		}
		values, err := ledger.CountersOf(ctx, names, counters)
		if err != nil {
			return nil, s.error(driver.OpLedger, names[0], err)
		}
		for i, value := range values {
			all[i] = max(all[i], value)
		}
	}
	return all, nil
}

// Raise implements driver.Ledger. It also raises the counter of each side to that of the other, so
// that each side alone knows how far a job has come.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (was int64, err error) {
	var before [2]int64
	for i, s := range l.sides {
		if before[i], err = s.raise(ctx, name, counter, to); err != nil {
			return 0, err
		}
	}
	was = max(before[old], before[next])
	for i, s := range l.sides {
		if max(before[i], to) < was {
			if _, err := s.raise(ctx, name, counter, was); err != nil {
				return 0, err
			}
		}
	}
	return was, nil
}

func (s side) raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	ledger, err := s.ledger(name)
	if err != nil {
		return 0, err
	}
	was, err := ledger.Raise(ctx, name, counter, to)
	if err != nil {
		return 0, s.error(driver.OpLedger, name, err)
	}
	return was, nil
}
