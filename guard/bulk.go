package guard

import (
	"context"
	"fmt"

	"github.com/seed-1795987d/onerun/guard/driver"
)

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

// Marked implements driver.Inspector. A key that cannot be one has no marker.
func (i *boundedInspector) Marked(ctx context.Context, keys []string) ([]bool, error) {
	marked := make([]bool, len(keys))
	var at []int
	var stored []string
	for j, key := range keys {
		if _, name, err := i.guard.prepare(key, i.opts); err == nil {
			at, stored = append(at, j), append(stored, name)
		}
	}
	for from := 0; from < len(stored); from += maxBulk {
		some := stored[from:min(from+maxBulk, len(stored))]
		err := i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, keys[at[from]], func(ctx context.Context) error {
			read, err := i.inspector.Marked(ctx, some)
			for j, is := range read {
				marked[at[from+j]] = is
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return marked, nil
}
