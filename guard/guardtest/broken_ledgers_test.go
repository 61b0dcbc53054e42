package guardtest_test

import (
	"cmp"
	"context"
	"testing"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A ledgerOf is the ledger of a server. Its fields replace calls to make it a broken ledger.
type ledgerOf struct {
	*server

	appends func(l driver.Ledger, ctx context.Context, name string, e driver.Entry, keep int) error
	entries func(l driver.Ledger, ctx context.Context, name string, n int) ([]driver.Entry, error)
	raises  func(l driver.Ledger, ctx context.Context, name, counter string, to int64) (int64, error)
}

func (l ledgerOf) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	_, err := ask(ctx, l.server, driver.OpLedger, driver.Claim{Key: name}, func(ctx context.Context, _ driver.Claim, m *memory.Locker) (struct{}, error) {
		if l.appends != nil {
			return struct{}{}, l.appends(m, ctx, name, e, keep)
		}
		return struct{}{}, m.Append(ctx, name, e, keep)
	})
	return err
}

func (l ledgerOf) read(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	return ask(ctx, l.server, driver.OpLedger, driver.Claim{Key: name}, func(ctx context.Context, _ driver.Claim, m *memory.Locker) ([]driver.Entry, error) {
		if l.entries != nil {
			return l.entries(m, ctx, name, n)
		}
		return driver.Entries(ctx, m, name, n)
	})
}

func (l ledgerOf) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return ask(ctx, l.server, driver.OpLedger, driver.Claim{Key: name}, func(ctx context.Context, _ driver.Claim, m *memory.Locker) (int64, error) {
		if l.raises != nil {
			return l.raises(m, ctx, name, counter, to)
		}
		return m.Raise(ctx, name, counter, to)
	})
}

func (l ledgerOf) EntriesOf(ctx context.Context, names []string, n int) (all [][]driver.Entry, err error) {
	for _, name := range names {
		entries, failed := l.read(ctx, name, n)
		all, err = append(all, entries), cmp.Or(err, failed)
	}
	return all, err
}

func (l ledgerOf) CountersOf(ctx context.Context, names, counters []string) (all []int64, err error) {
	for i, name := range names {
		value, failed := l.Raise(ctx, name, counters[i], 0)
		all, err = append(all, value), cmp.Or(err, failed)
	}
	return all, err
}

// ledgerBackend returns a backend with a ledger.
func ledgerBackend(broken ledgerOf) guardtest.Backend {
	if broken.server == nil {
		broken.server = &server{}
	}
	s := serverBackend(broken.server, func(guard.Locker) guard.Locker { return broken })
	s.Ledger = true
	return s
}

// A confusedLedger answers every log with the first one.
type confusedLedger struct{ ledgerOf }

func (l confusedLedger) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	all := make([][]driver.Entry, len(names))
	for i := range names {
		all[i], _ = l.read(ctx, names[0], n)
	}
	return all, nil
}

func (l confusedLedger) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	return l.ledgerOf.CountersOf(ctx, names, counters)
}

func bulkBackend() guardtest.Backend {
	ledger := ledgerOf{server: &server{}}
	s := serverBackend(ledger.server, func(guard.Locker) guard.Locker { return confusedLedger{ledger} })
	s.Ledger = true
	return s
}

func TestRun_passesAGoodBackendWithALedger(t *testing.T) { guardtest.Run(t, ledgerBackend(ledgerOf{})) }

func brokenLedgers() []broken {
	var last driver.Entry
	return []broken{
		{"a log returns its oldest entries first", ledgerBackend(ledgerOf{entries: func(l driver.Ledger, ctx context.Context, name string, n int) ([]driver.Entry, error) {
			all, err := driver.Entries(ctx, l, name, n)
			for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
				all[i], all[j] = all[j], all[i]
			}
			return all, err
		}}), []string{"a log returns its entries, the newest first"}},
		{"a log keeps all entries", ledgerBackend(ledgerOf{appends: func(l driver.Ledger, ctx context.Context, name string, e driver.Entry, _ int) error {
			return l.Append(ctx, name, e, driver.MaxEntries)
		}}), []string{"a log keeps its newest entries"}},
		{"a repeated entry is stored twice", ledgerBackend(ledgerOf{appends: func(l driver.Ledger, ctx context.Context, name string, e driver.Entry, keep int) error {
			if all, err := driver.Entries(ctx, l, name, 1); err == nil && len(all) > 0 {
				e.Record = append([]byte{}, append(e.Record, '+')...)
			}
			return l.Append(ctx, name, e, keep)
		}}), []string{"a repeated entry is stored once"}},
		{"an entry is the caller's own slice", ledgerBackend(ledgerOf{
			appends: func(l driver.Ledger, ctx context.Context, name string, e driver.Entry, keep int) error {
				last = e
				return l.Append(ctx, name, e, keep)
			},
			entries: func(driver.Ledger, context.Context, string, int) ([]driver.Entry, error) {
				return []driver.Entry{last}, nil
			},
		}), []string{"the store copies an entry"}},
		{"a counter can be lowered", ledgerBackend(ledgerOf{raises: func(l driver.Ledger, ctx context.Context, name, counter string, to int64) (int64, error) {
			was, err := l.Raise(ctx, name, counter, to)
			if err == nil && to < was && to > 0 {
				return to, nil
			}
			return was, err
		}}), []string{"a counter only grows"}},
		{"every raise is the first", ledgerBackend(ledgerOf{raises: func(l driver.Ledger, ctx context.Context, name, counter string, to int64) (int64, error) {
			was, err := l.Raise(ctx, name, counter, to)
			return min(was, max(to-1, 0)), err
		}}), []string{"at most one of several equal raises of a counter is the first"}},
		{"all counters are the same", ledgerBackend(ledgerOf{raises: func(l driver.Ledger, ctx context.Context, name, _ string, to int64) (int64, error) {
			return l.Raise(ctx, name, "one", to)
		}}), []string{"names are independent of one another and of keys"}},
		{"all logs of a call are the first", bulkBackend(), []string{"many logs and counters are read at once"}},
		{"a ledger ignores the context", ledgerBackend(ledgerOf{
			appends: func(l driver.Ledger, ctx context.Context, name string, e driver.Entry, keep int) error {
				return l.Append(context.WithoutCancel(ctx), name, e, keep)
			},
		}), []string{"a ledger call whose context has ended changes nothing"}},
		{"a ledger waits for a frozen store", ledgerBackend(ledgerOf{server: &server{ignoresContext: true}}), []string{"a ledger call on a frozen store returns when its context ends"}},
	}
}
