package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	boundedTimeout = 5 * time.Second
	// maxBulk bounds how many names are read at a time.
	maxBulk = 1000
)

// A boundedLedger checks the arguments of a Ledger, and bounds its calls.
type boundedLedger struct {
	guard  *Guard
	within time.Duration // bounds each call
}

// Ledger returns the Ledger of the Guard's backend. It puts the Guard's namespace before each
// name. It bounds each call by the TTL of a lease with these options, and by 5 s: an adapter may
// hold such a lease until the call has ended. Its calls return a *KeyError for a bad name, and a
// *SettingError for other values that cannot be kept. They return the error of the caller's
// context if that has ended, and a *StoreError if the store could not be asked. Ledger returns
// false if the backend has none.
func (a Adapter) Ledger(opts ...Option) (driver.Ledger, bool) {
	if a.guard.ledger == nil {
		return nil, false
	}
	set, _ := a.guard.set.with(opts)
	return &boundedLedger{guard: a.guard, within: min(set.ttl, boundedTimeout)}, true
}

func (l *boundedLedger) stored(names ...string) (stored []string, err error) {
	stored = make([]string, len(names))
	for i, name := range names {
		if stored[i], err = l.guard.set.stored(name, driver.CheckKey); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// Append implements driver.Ledger.
func (l *boundedLedger) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	stored, err := l.stored(name)
	err = errors.Join(err, mustBeFrom(0, driver.MaxCounter, "Entry.At", e.At, ""),
		mustBeFrom(1, driver.MaxEntry, "Entry.Record", len(e.Record), " bytes"), mustBeFrom(1, driver.MaxEntries, "keep", keep, ""))
	if err != nil {
		return err
	}
	_, err = bounded(ctx, l.guard, l.within, driver.OpLedger, stored[0], func(ctx context.Context) (any, error) {
		return nil, l.guard.ledger.Append(ctx, stored[0], e, keep)
	})
	return err
}

// Raise implements driver.Ledger.
func (l *boundedLedger) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	stored, err := l.stored(name)
	if counter == "" {
		err = errors.Join(err, &SettingError{Setting: "counter", Value: `""`, Reason: "must not be empty"})
	}
	if err = errors.Join(err, mustBeFrom(0, driver.MaxCounter, "to", to, "")); err != nil {
		return 0, err
	}
	return bounded(ctx, l.guard, l.within, driver.OpLedger, stored[0], func(ctx context.Context) (int64, error) {
		return l.guard.ledger.Raise(ctx, stored[0], counter, to)
	})
}

// EntriesOf implements driver.Ledger. It asks for up to 1,000 logs at a time.
func (l *boundedLedger) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	stored, err := l.stored(names...)
	if err = errors.Join(err, mustBeFrom(1, driver.MaxEntries, "n", n, "")); err != nil {
		return nil, err
	}
	return inBulk(ctx, l.guard, l.within, driver.OpLedger, stored, func(ctx context.Context, from, to int) ([][]driver.Entry, error) {
		return l.guard.ledger.EntriesOf(ctx, stored[from:to], n)
	})
}

// CountersOf implements driver.Ledger. It asks for up to 1,000 counters at a time.
func (l *boundedLedger) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	stored, err := l.stored(names...)
	if err = errors.Join(err, mustBeFrom(len(names), len(names), "counters", len(counters), "")); err != nil {
		return nil, err
	}
	return inBulk(ctx, l.guard, l.within, driver.OpLedger, stored, func(ctx context.Context, from, to int) ([]int64, error) {
		return l.guard.ledger.CountersOf(ctx, stored[from:to], counters[from:to])
	})
}

// mustBeFrom returns a *SettingError if the value of a setting is out of its bounds.
func mustBeFrom[N int | int64](low, high N, setting string, v N, unit string) error {
	if v >= low && v <= high {
		return nil
	}
	return &SettingError{
		Setting: setting, Value: fmt.Sprint(v, unit), Reason: fmt.Sprintf("must be from %d to %d%s", low, high, unit),
	}
}

// bounded makes a call to an ability of the store that is not needed for a lease, and reports it.
// The call ends after a time at the latest. Its result is zero if there is an error. If the backend
// returns a *SettingError, it has refused an argument, and has not asked the store.
func bounded[T any](
	ctx context.Context, g *Guard, within time.Duration, op driver.Op, key string, f func(context.Context) (T, error),
) (result T, err error) {
	sent := g.clock.Now()
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	result, err = f(call)
	var refused *SettingError
	switch {
	case err == nil:
	case errors.As(err, &refused):
		return *new(T), refused
	case hasEnded(ctx):
		err = contextEnded(ctx, op, key)
	default:
		err = asStoreError(op, key, err)
	}
	g.reportBounded(ctx, op, key, sent, err)
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

// inBulk calls f for up to 1,000 keys at a time, with the indexes of the first and after the last.
func inBulk[T any](
	ctx context.Context, g *Guard, within time.Duration, op driver.Op, keys []string, f func(ctx context.Context, from, to int) ([]T, error),
) (all []T, err error) {
	for from := 0; from < len(keys); from += maxBulk {
		some, err := bounded(ctx, g, within, op, keys[from], func(ctx context.Context) ([]T, error) {
			return f(ctx, from, min(from+maxBulk, len(keys)))
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// reportBounded calls the hooks of New for a call that bounded has made.
func (g *Guard) reportBounded(ctx context.Context, op driver.Op, key string, sent time.Duration, err error) {
	e := CallEvent{Event: Event{Name: g.set.name, Key: key, Start: g.clock.Time(sent)}, Op: op, Duration: g.clock.Now() - sent, Err: err}
	hooks(g.set.hooks).call(func(h *Hook) { send(ctx, h.Call, e) })
}
