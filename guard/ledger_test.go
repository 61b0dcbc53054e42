package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestLedger_putsTheNamespaceBeforeNames(t *testing.T) {
	store := memory.New()
	ours := openGuard(t, store, guard.WithNamespace("app"))
	ledger, ok := ours.Adapter().Ledger()
	require.True(t, ok)
	ctx := t.Context()
	require.NoError(t, ledger.Append(ctx, "job", driver.Entry{At: 1, Record: []byte("ran")}, 5))
	was, err := ledger.Raise(ctx, "job", "last", 7)
	require.NoError(t, err)
	require.Zero(t, was)

	entries, err := driver.Entries(ctx, ledger, "job", 5)
	require.NoError(t, err)
	require.Equal(t, []driver.Entry{{At: 1, Record: []byte("ran")}}, entries)
	entries, err = driver.Entries(ctx, store, "app::job", 5)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	was, err = store.Raise(ctx, "app::job", "last", 0)
	require.NoError(t, err)
	require.EqualValues(t, 7, was)
}

// leasesOnly is a backend without a ledger.
type leasesOnly struct{ guard.Locker }

func TestLedger_isMissingIfTheBackendHasNone(t *testing.T) {
	g := openGuard(t, leasesOnly{memory.New()})
	_, ok := g.Adapter().Ledger()
	require.False(t, ok)
}

// silentLedger is a backend whose ledger does not answer.
type silentLedger struct{ guard.Locker }

func (silentLedger) Append(ctx context.Context, _ string, _ driver.Entry, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silentLedger) EntriesOf(ctx context.Context, _ []string, _ int) ([][]driver.Entry, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silentLedger) CountersOf(ctx context.Context, _, _ []string) ([]int64, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silentLedger) Raise(ctx context.Context, _, _ string, _ int64) (int64, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// An adapter may hold a lease until a call to the ledger has ended. A store that does not answer
// keeps the key for no longer than a lease lasts.
func TestLedger_aCallEndsWithinTheTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		200 * time.Millisecond: 200 * time.Millisecond, 3 * time.Second: 3 * time.Second, 30 * time.Second: 5 * time.Second,
	} {
		inTimeOf(t, ttl.String(), func(t *testing.T) {
			g := openGuard(t, silentLedger{memory.New()})
			l, _ := g.Adapter().Ledger(guard.WithTTL(ttl))
			for name, call := range map[string]func() error{
				"Append":     func() error { return l.Append(t.Context(), "job", driver.Entry{Record: []byte("r")}, 1) },
				"EntriesOf":  func() error { _, err := l.EntriesOf(t.Context(), []string{"job"}, 1); return err },
				"CountersOf": func() error { _, err := l.CountersOf(t.Context(), []string{"job"}, []string{"n"}); return err },
				"Raise":      func() error { _, err := l.Raise(t.Context(), "job", "last", 1); return err },
			} {
				start := time.Now()
				require.ErrorIs(t, call(), guard.ErrStore, name)
				require.Equal(t, want, time.Since(start), name)
			}
		})
	}
}

func TestLedger_refusesBadValues(t *testing.T) {
	g := openGuard(t, memory.New())
	l, _ := g.Adapter().Ledger()
	ctx := t.Context()
	good := driver.Entry{At: 1, Record: []byte("r")}
	for name, err := range map[string]error{
		"Entry.At(-1)":                      l.Append(ctx, "job", driver.Entry{At: -1, Record: []byte("r")}, 1),
		"Entry.At(9007199254740992)":        l.Append(ctx, "job", driver.Entry{At: driver.MaxCounter + 1, Record: []byte("r")}, 1),
		"Entry.Record(0 bytes)":             l.Append(ctx, "job", driver.Entry{At: 1}, 1),
		"Entry.Record(65537 bytes)":         l.Append(ctx, "job", driver.Entry{At: 1, Record: bytes.Repeat([]byte("r"), driver.MaxEntry+1)}, 1),
		"keep(0)":                           l.Append(ctx, "job", good, 0),
		"keep(10001)":                       l.Append(ctx, "job", good, driver.MaxEntries+1),
		"n(0)":                              second(driver.Entries(ctx, l, "job", 0)),
		"counter(\"\")":                     second(l.Raise(ctx, "job", "", 1)),
		"to(-1)":                            second(l.Raise(ctx, "job", "n", -1)),
		fmt.Sprintf("to(%d)", int64(1<<53)): second(l.Raise(ctx, "job", "n", 1<<53)),
	} {
		_ = as[*guard.SettingError](t, err, name)
		require.ErrorContains(t, err, name)
	}
	for _, name := range []string{"", "a{b}", "nul\x00", strings.Repeat("k", guard.MaxKey+1)} {
		for _, err := range []error{l.Append(ctx, name, good, 1), second(driver.Entries(ctx, l, name, 1)), second(l.Raise(ctx, name, "n", 1))} {
			_ = as[*guard.KeyError](t, err)
		}
	}
	entries, err := driver.Entries(ctx, l, "job", 5)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestLedger_distinguishesCancelFromStoreErrors(t *testing.T) {
	g := openGuard(t, memory.New())
	l, _ := g.Adapter().Ledger()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{
		l.Append(ctx, "job", driver.Entry{At: 1, Record: []byte("r")}, 1), second(driver.Entries(ctx, l, "job", 1)), second(l.Raise(ctx, "job", "n", 1)),
	} {
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, guard.ErrStore)
		require.ErrorContains(t, err, `ledger "job"`)
	}
}

func second[T any](_ T, err error) error { return err }

func ExampleAdapter_Ledger() {
	g, err := guard.New(memory.New())
	if err != nil {
		panic(err)
	}
	ledger, _ := g.Adapter().Ledger()
	ctx := context.Background()
	for day := range int64(5) {
		entry := driver.Entry{At: day, Record: fmt.Appendf(nil, "day %d: sent by web-1", day)}
		if err := ledger.Append(ctx, "report", entry, 3); err != nil {
			panic(err)
		}
	}
	newest, err := driver.Entries(ctx, ledger, "report", 2)
	for _, e := range newest {
		fmt.Println(string(e.Record))
	}
	was, err2 := ledger.Raise(ctx, "report", "last", 4)
	fmt.Println(was, err, err2)
	// Output:
	// day 4: sent by web-1
	// day 3: sent by web-1
	// 0 <nil> <nil>
}
