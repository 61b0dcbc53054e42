package guardtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func ledgerChecks() []check {
	return []check{
		{name: "a log returns its entries, the newest first", run: keepsEntries, needs: hasLedger},
		{name: "a log keeps its newest entries", run: boundsLog, needs: hasLedger},
		{name: "a repeated entry is stored once", run: repeatsEntry, needs: hasLedger},
		{name: "the store copies an entry", run: copiesEntries, needs: hasLedger},
		{name: "a counter only grows", run: raises, needs: hasLedger},
		{name: "at most one of several equal raises of a counter is the first", run: raisesOnce, needs: hasLedger},
		{name: "many logs and counters are read at once", run: readsInBulk, needs: hasLedger},
		{name: "names are independent of one another and of keys", run: separatesNames, needs: hasLedger},
		{name: "a ledger call whose context has ended changes nothing", run: endedBeforeLedger, needs: hasLedger},
		{name: "a ledger call on a frozen store returns when its context ends", run: frozenLedger, needs: func(b Backend) bool { return b.Ledger && freezes(b) }, alone: true},
	}
}

func hasLedger(b Backend) bool { return b.Ledger }

func (p process) ledger() driver.Ledger {
	p.t.Helper()
	l, ok := p.locker.(driver.Ledger)
	require.True(p.t, ok, "Backend.Ledger is set, but the Locker is no driver.Ledger")
	return l
}

func (p process) append(name string, at int64, record string, keep int) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	require.NoError(p.t, p.ledger().Append(ctx, name, driver.Entry{At: at, Record: []byte(record)}, keep))
}

// log returns the records of the newest entries.
func (p process) log(name string, n int) (records []string) {
	p.t.Helper()
	for _, e := range p.entries(name, n) {
		records = append(records, string(e.Record))
	}
	return records
}

func (p process) entries(name string, n int) []driver.Entry {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	entries, err := driver.Entries(ctx, p.ledger(), name, n)
	require.NoError(p.t, err)
	return entries
}

func (p process) raise(name, counter string, to int64) (was int64) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	was, err := p.ledger().Raise(ctx, name, counter, to)
	require.NoError(p.t, err)
	return was
}

func keepsEntries(s *subject) {
	require.Empty(s, s.here.entries("job", 10), "a log must be empty before the first entry")
	want := []driver.Entry{
		{At: driver.MaxCounter, Record: []byte("last")}, {At: 1764000000123, Record: allBytes(0)}, {At: 3, Record: []byte("3")},
		{At: 2, Record: []byte("2 b")}, {At: 2, Record: []byte("2 a")}, {At: 0, Record: bytes.Repeat([]byte("0"), driver.MaxEntry)},
	}
	for _, i := range []int{3, 0, 5, 1, 4, 2} {
		s.here.append("job", want[i].At, string(want[i].Record), 10)
	}
	require.Equal(s, want, s.there.entries("job", 10))
	require.Equal(s, want[:2], s.there.entries("job", 2))
}

func boundsLog(s *subject) {
	for i := range int64(10) {
		s.here.append("job", i, fmt.Sprint(i), 3)
	}
	s.requireLog("9", "8", "7")
	s.here.append("job", 1, "too old", 3)
	s.requireLog("9", "8", "7")
	s.here.append("job", 10, "10", 2)
	s.requireLog("10", "9")
}

// requireLog checks that these are the newest records, and that the others are dropped. In a
// quorum, a slow node may drop them later.
func (s *subject) requireLog(records ...string) {
	s.Helper()
	require.Equal(s, records, s.there.log("job", len(records)))
	s.eventually(func() bool { return len(s.there.log("job", 10)) == len(records) }, "the log drops its oldest entries")
}

func repeatsEntry(s *subject) {
	s.here.append("job", 1, "one", 5)
	s.here.append("job", 2, "two", 5)
	s.there.append("job", 1, "one", 5)
	s.there.append("job", 3, "one", 5)
	require.Equal(s, []driver.Entry{{At: 2, Record: []byte("two")}, {At: 1, Record: []byte("one")}}, s.here.entries("job", 5))
}

func copiesEntries(s *subject) {
	ctx, cancel := s.here.context()
	defer cancel()
	record := []byte("record")
	require.NoError(s, s.here.ledger().Append(ctx, "job", driver.Entry{At: 1, Record: record}, 5))
	record[0] = 'X'
	entries := s.here.entries("job", 5)
	require.Equal(s, "record", string(entries[0].Record))
	entries[0].Record[0] = 'X'
	require.Equal(s, []string{"record"}, s.here.log("job", 5))
}

func raises(s *subject) {
	require.Zero(s, s.here.raise("job", "n", 0))
	require.Zero(s, s.here.raise("job", "n", 5))
	require.EqualValues(s, 5, s.there.raise("job", "n", 5))
	require.EqualValues(s, 5, s.there.raise("job", "n", 3))
	require.EqualValues(s, 5, s.there.raise("job", "n", 0))
	require.EqualValues(s, 5, s.here.raise("job", "n", driver.MaxCounter))
	require.EqualValues(s, driver.MaxCounter, s.there.raise("job", "n", 0))
}

func raisesOnce(s *subject) {
	for to := range int64(20) {
		var first atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			p := []process{s.here, s.there}[i%2]
			all.Go(func() {
				if p.raise("job", "n", to+1) < to+1 {
					first.Add(1)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(s, first.Load(), int32(1))
		require.Equal(s, to+1, s.here.raise("job", "n", 0))
	}
}

func readsInBulk(s *subject) {
	names := append([]string{"free", "job", "job 2"}, s.backend.Keys...)
	counters := make([]string, len(names))
	for i, name := range names {
		counters[i] = []string{"n", "other"}[i%2]
		for at := range int64(i) {
			s.here.append(name, at, fmt.Sprint(name, at), 10)
		}
		s.here.raise(name, counters[i], int64(i))
	}
	ctx, cancel := s.there.context()
	defer cancel()
	logs, err := s.there.ledger().EntriesOf(ctx, names, 2)
	require.NoError(s, err)
	require.Len(s, logs, len(names))
	values, err := s.there.ledger().CountersOf(ctx, names, counters)
	require.NoError(s, err)
	for i, name := range names {
		require.Equal(s, fmt.Sprint(s.there.entries(name, 2)), fmt.Sprint(logs[i]), "the log %q", name)
		require.Equal(s, int64(i), values[i], "the counter of %q", name)
	}
	values, err = s.there.ledger().CountersOf(ctx, []string{"job", "job"}, []string{"n", "other"})
	require.NoError(s, err)
	require.Equal(s, []int64{0, 1}, values)
}

func separatesNames(s *subject) {
	names := append([]string{"job", "job:log", "log:job", "count:job", "Job", "a b", "größer"}, s.backend.Keys...)
	for i, name := range names {
		s.here.append(name, 1, name, 5)
		require.Zero(s, s.here.raise(name, "n", int64(i+1)))
		require.Zero(s, s.here.raise(name, "other", 1))
	}
	for _, name := range names {
		s.here.mustAcquire(s.claim(name))
	}
	for i, name := range names {
		require.Equal(s, []string{name}, s.there.log(name, 5))
		require.EqualValues(s, i+1, s.there.raise(name, "n", 0))
	}
}

func endedBeforeLedger(s *subject) {
	for _, call := range ledgerCalls(s) {
		s.withEndedContexts(driver.OpLedger, call)
	}
	require.Empty(s, s.there.entries("key", 5))
	require.Zero(s, s.there.raise("key", "n", 0))
}

func frozenLedger(s *subject) {
	s.here.append("key", 1, "before", 5)
	s.freeze()
	for _, call := range ledgerCalls(s) {
		s.promptly(driver.OpLedger, call)
	}
}

// ledgerCalls returns one call of each method, for the name "key".
func ledgerCalls(s *subject) []func(context.Context) error {
	l := s.here.ledger()
	return []func(context.Context) error{
		func(ctx context.Context) error {
			return l.Append(ctx, "key", driver.Entry{At: 1, Record: []byte("record")}, 5)
		},
		func(ctx context.Context) error {
			_, err := driver.Entries(ctx, l, "key", 5)
			return err
		},
		func(ctx context.Context) error {
			_, err := l.Raise(ctx, "key", "n", 1)
			return err
		},
	}
}
