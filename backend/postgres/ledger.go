package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
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

// logRange returns the range of the keys of a log: from the first one, and up to the second one.
func logRange(name string) (from, to []byte) {
	return []byte(entryPrefix + name + "\x00"), []byte(entryPrefix + name + "\x01")
}

// Append implements driver.Ledger. An entry is a row.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	record := append([]byte{}, e.Record...)
	_, err := ask(ctx, l, driver.OpLedger, name, func(ctx context.Context) (none struct{}, err error) {
		from, to := logRange(name)
		sum := sha256.Sum256(record)
		key := append(bytes.Clone(from), sum[:]...)
		for range races {
			_, err = l.db.ExecContext(ctx, l.sql().append, key, from, to, e.At, record, keep)
			if !isRace(err) {
				break
			}
		}
		return none, err
	})
	return err
}

// Entries implements driver.Ledger.
func (l *Locker) Entries(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	logs, err := l.EntriesOf(ctx, []string{name}, n)
	if err != nil {
		return nil, err
	}
	return logs[0], nil
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	of := func(i int) []byte { return []byte(entryPrefix + names[i]) }
	return askAll(ctx, l, driver.OpLedger, names, of, func(scan func(...any) error, logs [][]driver.Entry) error {
		var standby bool
		var i int
		var at sql.NullInt64
		var record encoded
		err := scan(&standby, &i, &at, &record)
		switch {
		case err == nil && standby:
			return errStandby
		case at.Valid:
			logs[i-1] = append(logs[i-1], driver.Entry{At: at.Int64, Record: record})
		}
		return err
	}, func(s *statements) string { return s.entries }, n)
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	of := func(i int) []byte { return []byte(counterPrefix + names[i] + "\x00" + counters[i]) }
	return askAll(ctx, l, driver.OpLedger, names, of, func(scan func(...any) error, all []int64) error {
		var standby bool
		var i int
		var value int64
		err := scan(&standby, &i, &value)
		if err == nil && standby {
			return errStandby
		}
		if err == nil {
			all[i-1] = value
		}
		return err
	}, func(s *statements) string { return s.counters })
}

// askAll runs a statement for several keys: $1 is a list of them, in JSON and base64. read reads a
// row into the answers, of which there is one for each name.
func askAll[T any](
	ctx context.Context, l *Locker, op driver.Op, names []string, key func(i int) []byte,
	read func(scan func(...any) error, all []T) error,
	statement func(*statements) string, args ...any,
) ([]T, error) {
	return ask(ctx, l, op, names[0], func(ctx context.Context) ([]T, error) {
		keys := make([][]byte, len(names))
		for i := range names {
			keys[i] = key(i)
		}
		text, err := json.Marshal(keys)
		if err != nil {
			return nil, err
		}
		all := make([]T, len(names))
		err = l.query(ctx, func(scan func(...any) error) error { return read(scan, all) }, statement(l.sql()), append([]any{string(text)}, args...)...)
		return all, err
	})
}

// Raise implements driver.Ledger. A counter is a row.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return ask(ctx, l, driver.OpLedger, name, func(ctx context.Context) (was int64, err error) {
		key := []byte(counterPrefix + name + "\x00" + counter)
		days := int(driver.CounterTTL(counter)/(24*time.Hour)) + 2
		for range races {
			var standby bool
			var left int
			err = l.db.QueryRowContext(ctx, l.sql().counter, key).Scan(&standby, &was, &left)
			if err == nil && standby {
				err = errStandby
			}
			if err == nil && was > 0 && was >= to && left < days/2 { // it is read, so it is kept
				_, err = l.db.ExecContext(ctx, l.sql().keep, key, days)
			}
			if err != nil || was >= to {
				return was, err
			}
			err = l.db.QueryRowContext(ctx, l.sql().raise, key, to, days).Scan(&was)
			if !isRace(err) && !errors.Is(err, sql.ErrNoRows) {
				return was, err
			}
		}
		return 0, errRaces
	})
}
