package guardtest_test

import (
	"context"
	"testing"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A ledgerOf is the ledger of a server, whose calls a broken store changes.
type ledgerOf struct {
	*server

	appends func(l guard.Ledger, ctx context.Context, name string, e guard.Entry, keep int) error
	entries func(l guard.Ledger, ctx context.Context, name string, n int) ([]guard.Entry, error)
	raises  func(l guard.Ledger, ctx context.Context, name, counter string, to int64) (int64, error)
}

func (l ledgerOf) Append(ctx context.Context, name string, e guard.Entry, keep int) error {
	_, err := ask(ctx, l.server, guard.OpLedger, guard.Claim{Key: name}, func(ctx context.Context, _ guard.Claim, m *memory.Locker) (struct{}, error) {
		if l.appends != nil {
			return struct{}{}, l.appends(m, ctx, name, e, keep)
		}
		return struct{}{}, m.Append(ctx, name, e, keep)
	})
	return err
}

func (l ledgerOf) Entries(ctx context.Context, name string, n int) ([]guard.Entry, error) {
	return ask(ctx, l.server, guard.OpLedger, guard.Claim{Key: name}, func(ctx context.Context, _ guard.Claim, m *memory.Locker) ([]guard.Entry, error) {
		if l.entries != nil {
			return l.entries(m, ctx, name, n)
		}
		return m.Entries(ctx, name, n)
	})
}

func (l ledgerOf) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return ask(ctx, l.server, guard.OpLedger, guard.Claim{Key: name}, func(ctx context.Context, _ guard.Claim, m *memory.Locker) (int64, error) {
		if l.raises != nil {
			return l.raises(m, ctx, name, counter, to)
		}
		return m.Raise(ctx, name, counter, to)
	})
}

// ledgerStore returns a store with a ledger.
func ledgerStore(broken ledgerOf) guardtest.Store {
	if broken.server == nil {
		broken.server = &server{}
	}
	s := serverStore(broken.server, func(guard.Locker) guard.Locker { return broken })
	s.Ledger = true
	return s
}

func TestRun_passesAGoodStoreWithALedger(t *testing.T) { guardtest.Run(t, ledgerStore(ledgerOf{})) }

func brokenLedgers() []broken {
	var theirs guard.Entry
	return []broken{
		{"a log is read backwards", ledgerStore(ledgerOf{entries: func(l guard.Ledger, ctx context.Context, name string, n int) ([]guard.Entry, error) {
			all, err := l.Entries(ctx, name, n)
			for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
				all[i], all[j] = all[j], all[i]
			}
			return all, err
		}}), []string{"the entries of a log come back, the newest first"}},
		{"a log keeps all", ledgerStore(ledgerOf{appends: func(l guard.Ledger, ctx context.Context, name string, e guard.Entry, _ int) error {
			return l.Append(ctx, name, e, guard.MaxEntries)
		}}), []string{"a log keeps its newest entries"}},
		{"a repeated entry is another one", ledgerStore(ledgerOf{appends: func(l guard.Ledger, ctx context.Context, name string, e guard.Entry, keep int) error {
			if all, err := l.Entries(ctx, name, 1); err == nil && len(all) > 0 {
				e.Record = append([]byte{}, append(e.Record, '+')...)
			}
			return l.Append(ctx, name, e, keep)
		}}), []string{"an entry that is repeated is one"}},
		{"an entry is the caller's", ledgerStore(ledgerOf{
			appends: func(l guard.Ledger, ctx context.Context, name string, e guard.Entry, keep int) error {
				theirs = e
				return l.Append(ctx, name, e, keep)
			},
			entries: func(guard.Ledger, context.Context, string, int) ([]guard.Entry, error) {
				return []guard.Entry{theirs}, nil
			},
		}), []string{"an entry is the store's own copy"}},
		{"a counter is set", ledgerStore(ledgerOf{raises: func(l guard.Ledger, ctx context.Context, name, counter string, to int64) (int64, error) {
			was, err := l.Raise(ctx, name, counter, to)
			if err == nil && to < was && to > 0 {
				return to, nil
			}
			return was, err
		}}), []string{"a counter only grows"}},
		{"everybody is the first", ledgerStore(ledgerOf{raises: func(l guard.Ledger, ctx context.Context, name, counter string, to int64) (int64, error) {
			was, err := l.Raise(ctx, name, counter, to)
			return min(was, max(to-1, 0)), err
		}}), []string{"of those who raise a counter to the same, one at most is the first"}},
		{"counters are one", ledgerStore(ledgerOf{raises: func(l guard.Ledger, ctx context.Context, name, _ string, to int64) (int64, error) {
			return l.Raise(ctx, name, "one", to)
		}}), []string{"names do not meet each other, nor keys"}},
		{"a ledger acts for those who have gone", ledgerStore(ledgerOf{
			appends: func(l guard.Ledger, ctx context.Context, name string, e guard.Entry, keep int) error {
				return l.Append(context.WithoutCancel(ctx), name, e, keep)
			},
		}), []string{"a ledger does not act for a context that is over"}},
		{"a ledger waits for a frozen store", ledgerStore(ledgerOf{server: &server{deaf: true}}), []string{"a frozen store does not hold up a ledger"}},
	}
}
