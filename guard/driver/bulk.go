package driver

import (
	"bytes"
	"cmp"
	"context"
	"slices"
)

// A BulkLedger is a Ledger that reads many logs or counters in one round trip to each server. Use
// EntriesOf and CountersOf to read those of any Ledger.
type BulkLedger interface {
	Ledger
	// EntriesOf is Entries of each of the names.
	EntriesOf(ctx context.Context, names []string, n int) ([][]Entry, error)
	// CountersOf returns the values of counters: that of counters[i] of names[i], or 0 if it was
	// never raised. A counter that is read this way is not kept longer because of it.
	CountersOf(ctx context.Context, names, counters []string) ([]int64, error)
}

// EntriesOf returns the newest entries of several logs, at most n of each, as Ledger.Entries does.
// It asks for one after the other if the Ledger is not a BulkLedger.
func EntriesOf(ctx context.Context, l Ledger, names []string, n int) ([][]Entry, error) {
	if bulk, ok := l.(BulkLedger); ok {
		return bulk.EntriesOf(ctx, names, n)
	}
	all := make([][]Entry, len(names))
	for i, name := range names {
		var err error
		if all[i], err = l.Entries(ctx, name, n); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Newest returns the n newest entries of copies of a log, each once.
func Newest(n int, logs ...[]Entry) []Entry {
	all := slices.Concat(logs...)
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.At, a.At), bytes.Compare(b.Record, a.Record))
	})
	all = slices.CompactFunc(all, func(a, b Entry) bool { return bytes.Equal(a.Record, b.Record) })
	return all[:min(len(all), n)]
}

// CountersOf returns the values of several counters, as BulkLedger.CountersOf does. It asks for one
// after the other if the Ledger is not a BulkLedger.
func CountersOf(ctx context.Context, l Ledger, names, counters []string) ([]int64, error) {
	if bulk, ok := l.(BulkLedger); ok {
		return bulk.CountersOf(ctx, names, counters)
	}
	all := make([]int64, len(names))
	for i, name := range names {
		var err error
		if all[i], err = l.Raise(ctx, name, counters[i], 0); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A MarkerReader is an Inspector that finds done markers without a Show of each key.
type MarkerReader interface {
	// Marked reports for each key whether it has a done marker, in one round trip to each server.
	// If it reports false, the store may have a marker nevertheless, which Show then finds.
	Marked(ctx context.Context, keys []string) ([]bool, error)
}

// Marked reports which keys are known to have a done marker. None is if the Inspector is not a
// MarkerReader.
func Marked(ctx context.Context, i Inspector, keys []string) ([]bool, error) {
	if reader, ok := i.(MarkerReader); ok && len(keys) > 0 {
		return reader.Marked(ctx, keys)
	}
	return make([]bool, len(keys)), nil
}
