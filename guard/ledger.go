package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A boundedLedger checks the arguments of a Ledger, and bounds its calls.
type boundedLedger struct {
	guard  *Guard
	ledger driver.Ledger
	within time.Duration // bounds each call
}

const boundedTimeout = 5 * time.Second

// Ledger returns the Ledger of the Guard's backend. It puts the Guard's namespace before each
// name. It bounds each call by the TTL of a lease with these options, and by 5 s: an adapter may
// hold such a lease until the call has ended. Its calls return a *KeyError for a bad name, and a
// *SettingError for other values that cannot be kept. They return the error of the caller's
// context if that has ended, and a *StoreError if the store could not be asked. Ledger returns
// false if the backend has none.
func (a Adapter) Ledger(opts ...Option) (driver.Ledger, bool) {
	l, ok := driver.Ability[driver.Ledger](a.guard.locker)
	if !ok {
		return nil, false
	}
	set, _ := a.guard.set.with(opts)
	return &boundedLedger{guard: a.guard, ledger: l, within: min(set.ttl, boundedTimeout)}, true
}

// name returns the name by which the store knows it.
func (l *boundedLedger) name(name string) (string, error) {
	if err := notOfANamespace(l.guard.set, name); err != nil {
		return "", err
	}
	name = driver.JoinNamespace(l.guard.set.namespace, name)
	return name, driver.CheckKey(name)
}

// bounded makes a call.
func (l *boundedLedger) bounded(ctx context.Context, name string, f func(context.Context) error) error {
	return l.guard.bounded(ctx, l.within, driver.OpLedger, name, f)
}

// Append implements Ledger.
func (l *boundedLedger) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	name, err := l.name(name)
	switch {
	case err != nil:
		return err
	case e.At < 0 || e.At > driver.MaxCounter:
		return &SettingError{Setting: "Entry.At", Value: fmt.Sprint(e.At), Reason: "must be from 0 to 2^53-1"}
	case len(e.Record) == 0 || len(e.Record) > driver.MaxEntry:
		return &SettingError{Setting: "Entry.Record", Value: fmt.Sprintf("%d bytes", len(e.Record)), Reason: fmt.Sprintf("must be from 1 to %d bytes", driver.MaxEntry)}
	}
	if err := checkEntries("keep", keep); err != nil {
		return err
	}
	return l.bounded(ctx, name, func(ctx context.Context) error { return l.ledger.Append(ctx, name, e, keep) })
}

// Entries implements Ledger.
func (l *boundedLedger) Entries(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	name, err := l.name(name)
	if err != nil {
		return nil, err
	}
	if err := checkEntries("n", n); err != nil {
		return nil, err
	}
	var entries []driver.Entry
	err = l.bounded(ctx, name, func(ctx context.Context) (err error) {
		entries, err = l.ledger.Entries(ctx, name, n)
		return err
	})
	return entries, err
}

// Raise implements Ledger.
func (l *boundedLedger) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	name, err := l.name(name)
	switch {
	case err != nil:
		return 0, err
	case counter == "":
		return 0, &SettingError{Setting: "counter", Value: `""`, Reason: "must not be empty"}
	case to < 0 || to > driver.MaxCounter:
		return 0, &SettingError{Setting: "to", Value: fmt.Sprint(to), Reason: "must be from 0 to 2^53-1"}
	}
	var was int64
	err = l.bounded(ctx, name, func(ctx context.Context) (err error) {
		was, err = l.ledger.Raise(ctx, name, counter, to)
		return err
	})
	return was, err
}

// bounded makes a call to an ability of the store that is not needed for a lease, and reports it.
// The call ends after a time at the latest.
func (g *Guard) bounded(ctx context.Context, within time.Duration, op driver.Op, key string, f func(context.Context) error) error {
	sent := g.clock.Now()
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := f(call)
	switch {
	case err == nil:
	case hasEnded(ctx):
		err = contextEnded(ctx, op, key)
	default:
		err = asStoreError(op, key, err)
	}
	g.reportBounded(ctx, op, key, sent, err)
	return err
}

func checkEntries(setting string, n int) error {
	if n < 1 || n > driver.MaxEntries {
		return &SettingError{Setting: setting, Value: fmt.Sprint(n), Reason: fmt.Sprintf("must be from 1 to %d", driver.MaxEntries)}
	}
	return nil
}

// maxBulk bounds how many names are read at a time.
const maxBulk = 1000

// EntriesOf implements driver.Ledger. It asks for up to 1,000 logs at a time.
func (l *boundedLedger) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	if err := checkEntries("n", n); err != nil {
		return nil, err
	}
	return inBulk(ctx, l, names, func(ctx context.Context, stored []string, _ int) ([][]driver.Entry, error) {
		return l.ledger.EntriesOf(ctx, stored, n)
	})
}

// CountersOf implements driver.Ledger. It asks for up to 1,000 counters at a time.
func (l *boundedLedger) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	if len(names) != len(counters) {
		return nil, &SettingError{Setting: "counters", Value: fmt.Sprint(len(counters)), Reason: "must be as many as names"}
	}
	return inBulk(ctx, l, names, func(ctx context.Context, stored []string, from int) ([]int64, error) {
		return l.ledger.CountersOf(ctx, stored, counters[from:from+len(stored)])
	})
}

// inBulk calls f with up to 1,000 names at a time, as the store knows them, and with the index of
// the first.
func inBulk[T any](
	ctx context.Context, l *boundedLedger, names []string, f func(ctx context.Context, stored []string, from int) ([]T, error),
) (all []T, err error) {
	stored := make([]string, len(names))
	for i, name := range names {
		if stored[i], err = l.name(name); err != nil {
			return nil, err
		}
	}
	for from := 0; from < len(stored); from += maxBulk {
		some := stored[from:min(from+maxBulk, len(stored))]
		err = l.bounded(ctx, some[0], func(ctx context.Context) error {
			read, err := f(ctx, some, from)
			all = append(all, read...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
