package mysql

import (
	"context"
	"database/sql"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Append implements sqlstore.Dialect.
func (d *dialect) Append(ctx context.Context, log sqlstore.Log, key []byte, e driver.Entry, keep int) error {
	return sqlstore.Repeat(isRace, func() (done bool, err error) {
		var newer int
		err = d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error { return scan(&newer) },
			"newer", log.From, log.To, e.At, e.At, e.Record)
		if err != nil || newer >= keep {
			return err == nil, err
		}
		_, err = d.exec(ctx, d.db, "append", key, sqlstore.Entry, e.At, e.Record, sqlstore.EntryDays)
		if err != nil && number(err) != duplicate {
			return false, err
		}
		var surplus []string
		err = d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error { return scanKey(scan, &surplus) },
			"surplus", log.From, log.To, keep)
		if err == nil && len(surplus) > 0 {
			_, err = d.exec(ctx, d.db, "drop", surplus)
		}
		return err == nil, err
	})
}

// Entries implements sqlstore.Dialect.
func (d *dialect) Entries(ctx context.Context, logs []sqlstore.Log, n int) ([][]driver.Entry, error) {
	all := make([][]driver.Entry, len(logs))
	for i, log := range logs {
		err := d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error {
			var at sql.NullInt64
			var record []byte
			err := scan(&at, &record)
			if at.Valid {
				all[i] = append(all[i], driver.Entry{At: at.Int64, Record: record})
			}
			return err
		}, "entries", log.From, log.To, n)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A counter is a number, and for how many days it is kept.
type counter struct {
	number int64
	days   int
}

func (d *dialect) counters(ctx context.Context, keys []string) (map[string]counter, error) {
	found := map[string]counter{}
	err := d.queryEach(ctx, keys, func(scan sqlstore.ScanFunc) error {
		var key sql.NullString
		var c counter
		err := scan(&key, &c.number, &c.days)
		if key.Valid {
			found[key.String] = c
		}
		return err
	}, "counters")
	return found, err
}

// Counters implements sqlstore.Dialect.
func (d *dialect) Counters(ctx context.Context, keys []string) ([]int64, error) {
	found, err := d.counters(ctx, keys)
	numbers := make([]int64, len(keys))
	for i, key := range keys {
		numbers[i] = found[key].number
	}
	return numbers, err
}

// Raise implements sqlstore.Dialect.
func (d *dialect) Raise(ctx context.Context, key string, to int64, days int) (was int64, err error) {
	err = sqlstore.Repeat(isRace, func() (done bool, err error) {
		found, err := d.counters(ctx, []string{key})
		if err != nil {
			return false, err
		}
		c, exists := found[key]
		was = c.number
		isRead := was > 0 && was >= to && c.days < days/2 // so it is kept
		if was >= to && !isRead {
			return true, nil
		}
		var n int64
		if exists {
			n, err = d.exec(ctx, d.db, "raise", max(was, to), days, key, was)
		} else {
			n, err = d.exec(ctx, d.db, "append", key, sqlstore.Counter, to, []byte(nil), days)
			if number(err) == duplicate {
				return false, nil // another call has made it meanwhile
			}
		}
		return n > 0, err
	})
	return was, err
}
