package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Ledger = (*Locker)(nil)

// Rows of a ledger have keys that begin with a NUL byte, which no other key has. A name has none
// either, so the next one ends it.
const (
	entryPrefix   = "\x00e"
	counterPrefix = "\x00c"
)

func counterKey(name, counter string) string { return counterPrefix + name + "\x00" + counter }

// logRange returns the range of the keys of a log: from the first one, and up to the second one.
func logRange(name string) (from, to []byte) {
	return []byte(entryPrefix + name + "\x00"), []byte(entryPrefix + name + "\x01")
}

// Append implements driver.Ledger. An entry is a row.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	record := append([]byte{}, e.Record...) // the statement may outlast the call
	from, to := logRange(name)
	sum := sha256.Sum256(record)
	key := append(bytes.Clone(from), sum[:]...)
	_, err := ask(ctx, l, driver.OpLedger, name, func(ctx context.Context) (none struct{}, err error) {
		return none, repeat(func() (done bool, err error) {
			_, err = l.db.ExecContext(ctx, l.sql("append"), key, from, to, e.At, record, keep)
			return err == nil, err
		})
	})
	return err
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	prefix := func(i int) string { return entryPrefix + names[i] }
	return queryEach(ctx, l, driver.OpLedger, names, prefix, func(scan scanFunc, logs [][]driver.Entry) error {
		var i int
		var at sql.NullInt64
		var record encoded
		err := scan(&i, &at, &record)
		if at.Valid {
			logs[i-1] = append(logs[i-1], driver.Entry{At: at.Int64, Record: record})
		}
		return err
	}, "entries", n)
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	key := func(i int) string { return counterKey(names[i], counters[i]) }
	return queryEach(ctx, l, driver.OpLedger, names, key, scanOne[int64], "counters")
}

// Raise implements driver.Ledger. A counter is a row.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	key := []byte(counterKey(name, counter))
	days := int(driver.CounterTTL(counter)/(24*time.Hour)) + 2
	return ask(ctx, l, driver.OpLedger, name, func(ctx context.Context) (was int64, err error) {
		err = repeat(func() (done bool, err error) {
			var left int
			err = l.query(ctx, func(scan scanFunc) error { return scan(&was, &left) }, l.sql("counter"), key)
			if err == nil && was > 0 && was >= to && left < days/2 { // it is read, so it is kept
				_, err = l.db.ExecContext(ctx, l.sql("keep"), key, days)
			}
			if err != nil || was >= to {
				return err == nil, err
			}
			err = l.db.QueryRowContext(ctx, l.sql("raise"), key, to, days).Scan(&was)
			if errors.Is(err, sql.ErrNoRows) {
				return false, nil // another call has raised it meanwhile
			}
			return err == nil, err
		})
		return was, err
	})
}

// queryEach runs a statement for several names: $1 is a list of their keys, in JSON and base64.
// read reads a row into the answers, of which there is one for each name.
func queryEach[T any](
	ctx context.Context, l *Locker, op driver.Op, names []string, key func(i int) string,
	read func(scan scanFunc, answers []T) error, statement string, args ...any,
) ([]T, error) {
	keys := make([][]byte, len(names))
	for i := range names {
		keys[i] = []byte(key(i))
	}
	args = append([]any{toJSON(keys)}, args...)
	return ask(ctx, l, op, names[0], func(ctx context.Context) ([]T, error) {
		answers := make([]T, len(names))
		return answers, l.query(ctx, func(scan scanFunc) error { return read(scan, answers) }, l.sql(statement), args...)
	})
}

// scanOne reads the index of a name, from 1, and the only answer for it.
func scanOne[T any](scan scanFunc, answers []T) error {
	var i int
	var answer T
	err := scan(&i, &answer)
	if err == nil {
		answers[i-1] = answer
	}
	return err
}
