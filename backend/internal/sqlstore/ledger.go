package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Rows of a ledger have keys that begin with a NUL byte, which no other key has. A name has none
// either, so the next one ends it.
const (
	entryPrefix   = "\x00e"
	counterPrefix = "\x00c"
)

// The states of rows of a ledger. The column last of an entry is Entry.At.
const (
	Entry   = "entry"
	Counter = "counter"
)

// EntryDays is for how many days an entry is kept.
const EntryDays = 4000

// A Log is the range of the keys of a log: from the first one, and up to the second one.
type Log struct{ From, To []byte }

func logOf(name string) Log {
	return Log{[]byte(entryPrefix + name + "\x00"), []byte(entryPrefix + name + "\x01")}
}

func counterKey(name, counter string) string { return counterPrefix + name + "\x00" + counter }

// Append implements driver.Ledger. An entry is a row.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	e.Record = append([]byte{}, e.Record...) // the statement may outlast the call
	log, sum := logOf(name), sha256.Sum256(e.Record)
	key := append(bytes.Clone(log.From), sum[:]...)
	_, err := Ask(ctx, l, driver.OpLedger, name, func(ctx context.Context) (none struct{}, err error) {
		return none, l.dialect.Append(ctx, log, key, e, keep)
	})
	return err
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	logs := make([]Log, len(names))
	for i, name := range names {
		logs[i] = logOf(name)
	}
	return Ask(ctx, l, driver.OpLedger, names[0], func(ctx context.Context) ([][]driver.Entry, error) {
		return l.dialect.Entries(ctx, logs, n)
	})
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	keys := make([]string, len(names))
	for i := range names {
		keys[i] = counterKey(names[i], counters[i])
	}
	return Ask(ctx, l, driver.OpLedger, names[0], func(ctx context.Context) ([]int64, error) {
		return l.dialect.Counters(ctx, keys)
	})
}

// Raise implements driver.Ledger. A counter is a row.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	days := int(driver.CounterTTL(counter)/(24*time.Hour)) + 2
	return Ask(ctx, l, driver.OpLedger, name, func(ctx context.Context) (int64, error) {
		return l.dialect.Raise(ctx, counterKey(name, counter), to, days)
	})
}
