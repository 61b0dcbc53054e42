package guardtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func ledgerChecks() []check {
	return []check{
		{name: "the entries of a log come back, the newest first", run: keepsEntries, needs: hasLedger},
		{name: "a log keeps its newest entries", run: boundsLog, needs: hasLedger},
		{name: "an entry that is repeated is one", run: repeatsEntry, needs: hasLedger},
		{name: "an entry is the store's own copy", run: copiesEntries, needs: hasLedger},
		{name: "a counter only grows", run: raises, needs: hasLedger},
		{name: "of those who raise a counter to the same, one at most is the first", run: raisesOnce, needs: hasLedger},
		{name: "names do not meet each other, nor keys", run: separatesNames, needs: hasLedger},
		{name: "a ledger does not act for a context that is over", run: overBeforeLedger, needs: hasLedger},
		{name: "a frozen store does not hold up a ledger", run: frozenLedger, needs: func(s Store) bool { return s.Ledger && freezes(s) }},
	}
}

func hasLedger(s Store) bool { return s.Ledger }

func (p process) ledger() guard.Ledger {
	p.t.Helper()
	l, ok := guard.Ability[guard.Ledger](p.locker)
	require.True(p.t, ok, "the Locker is no guard.Ledger")
	return l
}

func (p process) append(name string, at int64, record string, keep int) {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	require.NoError(p.t, p.ledger().Append(ctx, name, guard.Entry{At: at, Record: []byte(record)}, keep))
}

// log returns the records of the newest entries.
func (p process) log(name string, n int) (records []string) {
	p.t.Helper()
	for _, e := range p.entries(name, n) {
		records = append(records, string(e.Record))
	}
	return records
}

func (p process) entries(name string, n int) []guard.Entry {
	p.t.Helper()
	ctx, cancel := p.context()
	defer cancel()
	entries, err := p.ledger().Entries(ctx, name, n)
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
	require.Empty(s, s.here.entries("job", 10), "a log that nobody has written to")
	want := []guard.Entry{
		{At: guard.MaxCounter, Record: []byte("last")}, {At: 1764000000123, Record: allBytes(0)}, {At: 3, Record: []byte("3")},
		{At: 2, Record: []byte("2 b")}, {At: 2, Record: []byte("2 a")}, {At: 0, Record: bytes.Repeat([]byte("0"), guard.MaxEntry)},
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
	s.keeps("9", "8", "7")
	s.here.append("job", 1, "too old", 3)
	s.keeps("9", "8", "7")
	s.here.append("job", 10, "10", 2)
	s.keeps("10", "9")
}

// keeps checks that these are the newest records, and that there will be no others: in a quorum, a slow node may not have dropped them yet.
func (s *subject) keeps(records ...string) {
	s.Helper()
	require.Equal(s, records, s.there.log("job", len(records)))
	s.eventually(func() bool { return len(s.there.log("job", 10)) == len(records) }, "the log drops what it need not keep")
}

func repeatsEntry(s *subject) {
	s.here.append("job", 1, "one", 5)
	s.here.append("job", 2, "two", 5)
	s.there.append("job", 1, "one", 5)
	s.there.append("job", 3, "one", 5)
	require.Equal(s, []guard.Entry{{At: 2, Record: []byte("two")}, {At: 1, Record: []byte("one")}}, s.here.entries("job", 5))
}

func copiesEntries(s *subject) {
	ctx, cancel := s.here.context()
	defer cancel()
	record := []byte("record")
	require.NoError(s, s.here.ledger().Append(ctx, "job", guard.Entry{At: 1, Record: record}, 5))
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
	require.EqualValues(s, 5, s.here.raise("job", "n", guard.MaxCounter))
	require.EqualValues(s, guard.MaxCounter, s.there.raise("job", "n", 0))
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

func separatesNames(s *subject) {
	names := append([]string{"job", "job:log", "log:job", "count:job", "Job", "a b", "größer"}, s.store.Keys...)
	for i, name := range names {
		s.here.append(name, 1, name, 5)
		require.Zero(s, s.here.raise(name, "n", int64(i+1)))
		require.Zero(s, s.here.raise(name, "other", 1))
	}
	for _, name := range names {
		s.here.take(s.claim(name))
	}
	for i, name := range names {
		require.Equal(s, []string{name}, s.there.log(name, 5))
		require.EqualValues(s, i+1, s.there.raise(name, "n", 0))
	}
}

func overBeforeLedger(s *subject) {
	for _, ask := range ledgerCalls(s) {
		s.over(guard.OpLedger, ask)
	}
	require.Empty(s, s.there.entries("key", 5))
	require.Zero(s, s.there.raise("key", "n", 0))
}

func frozenLedger(s *subject) {
	s.here.append("key", 1, "before", 5)
	s.freeze()
	for _, ask := range ledgerCalls(s) {
		s.promptly(guard.OpLedger, ask)
	}
}

// ledgerCalls are one of each, about the name "key".
func ledgerCalls(s *subject) []func(context.Context) error {
	l := s.here.ledger()
	return []func(context.Context) error{
		func(ctx context.Context) error {
			return l.Append(ctx, "key", guard.Entry{At: 1, Record: []byte("record")}, 5)
		},
		func(ctx context.Context) error {
			_, err := l.Entries(ctx, "key", 5)
			return err
		},
		func(ctx context.Context) error {
			_, err := l.Raise(ctx, "key", "n", 1)
			return err
		},
	}
}
