package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Ledger = (*Locker)(nil)

// A ledger is the logs and counters of driver.Ledger. They last until the process ends.
type ledger struct {
	logs     map[string][]driver.Entry // the newest first
	counters map[[2]string]int64       // by name and counter
}

// Append implements driver.Ledger.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	if _, err := l.lock(ctx, driver.OpLedger, name); err != nil {
		return err
	}
	defer l.unlock()
	if l.ledger.logs == nil {
		l.ledger.logs = map[string][]driver.Entry{}
	}
	log := l.ledger.logs[name]
	if !slices.ContainsFunc(log, func(old driver.Entry) bool { return bytes.Equal(old.Record, e.Record) }) {
		e.Record = bytes.Clone(e.Record)
		at, _ := slices.BinarySearchFunc(log, e, driver.NewestFirst)
		log = slices.Insert(log, at, e)
	}
	l.ledger.logs[name] = slices.Clip(log[:min(len(log), keep)])
	return nil
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	if _, err := l.lock(ctx, driver.OpLedger, names[0]); err != nil {
		return nil, err
	}
	defer l.unlock()
	all := make([][]driver.Entry, len(names))
	for i, name := range names {
		log := l.ledger.logs[name]
		all[i] = slices.Clone(log[:min(len(log), n)])
		for j, e := range all[i] {
			all[i][j].Record = bytes.Clone(e.Record)
		}
	}
	return all, nil
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	if _, err := l.lock(ctx, driver.OpLedger, names[0]); err != nil {
		return nil, err
	}
	defer l.unlock()
	all := make([]int64, len(names))
	for i, name := range names {
		all[i] = l.ledger.counters[[2]string{name, counters[i]}]
	}
	return all, nil
}

// Raise implements driver.Ledger.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	if _, err := l.lock(ctx, driver.OpLedger, name); err != nil {
		return 0, err
	}
	defer l.unlock()
	if l.ledger.counters == nil {
		l.ledger.counters = map[[2]string]int64{}
	}
	id := [2]string{name, counter}
	was := l.ledger.counters[id]
	l.ledger.counters[id] = max(was, to)
	return was, nil
}
