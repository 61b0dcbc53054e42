package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Append implements sqlstore.Dialect.
func (d *dialect) Append(ctx context.Context, log sqlstore.Log, key []byte, e driver.Entry, keep int) error {
	return d.writer.do(ctx, false, func(ctx context.Context, tx *sql.Conn) error {
		_, err := tx.ExecContext(ctx, d.statements["append"],
			key, log.From, log.To, e.At, e.Record, keep, now(), today()+sqlstore.EntryDays)
		if err == nil {
			_, err = tx.ExecContext(ctx, d.statements["drop"], log.From, log.To, keep)
		}
		return err
	})
}

// Entries implements sqlstore.Dialect.
func (d *dialect) Entries(ctx context.Context, logs []sqlstore.Log, n int) ([][]driver.Entry, error) {
	answers := make([][]driver.Entry, len(logs))
	for i, log := range logs {
		err := whileLocked(ctx, func() error {
			answers[i] = nil
			return d.query(ctx, func(rows *sql.Rows) error {
				var e driver.Entry
				err := rows.Scan(&e.At, &e.Record)
				answers[i] = append(answers[i], e)
				return err
			}, "entries", log.From, log.To, n)
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Counters implements sqlstore.Dialect.
func (d *dialect) Counters(ctx context.Context, keys []string) ([]int64, error) {
	all, err := d.states(ctx, keys)
	numbers := make([]int64, len(keys))
	for i, s := range all {
		numbers[i] = s.last
	}
	return numbers, err
}

// Raise implements sqlstore.Dialect.
func (d *dialect) Raise(ctx context.Context, key string, to int64, days int) (was int64, err error) {
	var until int64
	read := func(from sqlstore.Tx) error {
		err := from.QueryRowContext(ctx, d.statements["counter"], []byte(key)).Scan(&was, &until)
		if errors.Is(err, sql.ErrNoRows) {
			was, until, err = 0, 0, nil
		}
		return err
	}
	kept := func() bool { return was >= to && (was == 0 || until-today() >= int64(days/2)) }
	err = whileLocked(ctx, func() error { return read(d.db) })
	if err != nil || kept() {
		return was, err
	}
	err = d.writer.do(ctx, false, func(ctx context.Context, tx *sql.Conn) error {
		if err := read(tx); err != nil || kept() {
			return err
		}
		_, err := tx.ExecContext(ctx, d.statements["raise"], []byte(key), max(was, to), now(), today()+int64(days))
		return err
	})
	return was, err
}
