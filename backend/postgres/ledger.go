package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Append implements sqlstore.Dialect.
func (d *dialect) Append(ctx context.Context, log sqlstore.Log, key []byte, e driver.Entry, keep int) error {
	return sqlstore.Repeat(isRace, func() (done bool, err error) {
		_, err = d.db.ExecContext(ctx, d.sql("append"), key, log.From, log.To, e.At, e.Record, keep)
		return err == nil, err
	})
}

// Entries implements sqlstore.Dialect.
func (d *dialect) Entries(ctx context.Context, logs []sqlstore.Log, n int) ([][]driver.Entry, error) {
	begin := make([]string, len(logs)) // the statement adds the byte that ends the name
	for i, log := range logs {
		begin[i] = string(log.From[:len(log.From)-1])
	}
	return queryEach(ctx, d, begin, func(scan sqlstore.ScanFunc, logs [][]driver.Entry) error {
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

// Counters implements sqlstore.Dialect.
func (d *dialect) Counters(ctx context.Context, keys []string) ([]int64, error) {
	return queryEach(ctx, d, keys, scanOne[int64], "counters")
}

// Raise implements sqlstore.Dialect.
func (d *dialect) Raise(ctx context.Context, key string, to int64, days int) (was int64, err error) {
	err = sqlstore.Repeat(isRace, func() (done bool, err error) {
		var left int
		err = d.query(ctx, func(scan sqlstore.ScanFunc) error { return scan(&was, &left) }, d.sql("counter"), []byte(key))
		if err == nil && was > 0 && was >= to && left < days/2 { // it is read, so it is kept
			_, err = d.db.ExecContext(ctx, d.sql("keep"), []byte(key), days)
		}
		if err != nil || was >= to {
			return err == nil, err
		}
		err = d.db.QueryRowContext(ctx, d.sql("raise"), []byte(key), to, days).Scan(&was)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil // another call has raised it meanwhile
		}
		return err == nil, err
	})
	return was, err
}
