package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// A state is what a statement for one of several keys reads.
type state struct {
	version int64
	state   string
	ends    int64
	last    int64
}

// states reads the keys. A key without a row has a zero state.
func (d *dialect) states(ctx context.Context, keys []string) ([]state, error) {
	all := make([]state, len(keys))
	err := whileLocked(ctx, func() error {
		conn, err := d.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return d.statesBy(ctx, conn, keys, all)
	})
	return all, err
}

func (d *dialect) statesBy(ctx context.Context, conn *sql.Conn, keys []string, all []state) error {
	statement, err := conn.PrepareContext(ctx, d.statements["state"])
	if err != nil {
		return err
	}
	defer statement.Close()
	for i, key := range keys {
		s := &all[i]
		err := statement.QueryRowContext(ctx, []byte(key)).Scan(&s.version, &s.state, &s.ends, &s.last)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// lookAfter is after what time keys are looked at although the file seems the same.
const lookAfter = time.Second

// A watch is what the last look has found.
type watch struct {
	mu      sync.Mutex
	conn    any   // the driver's connection
	others  int64 // changes when another connection writes
	own     int64 // changes when this connection writes
	keys    []string
	lookNow time.Time
}

// Look implements sqlstore.Dialect. If no connection has written since the last look, which SQLite
// says without reading the keys, it returns nil.
func (d *dialect) Look(ctx context.Context, keys []string) ([]sqlstore.Seen, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	w := &d.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	var found watch
	err = errors.Join(
		conn.Raw(func(c any) error { found.conn = c; return nil }),
		conn.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&found.others),
		conn.QueryRowContext(ctx, `SELECT total_changes()`).Scan(&found.own),
	)
	if err != nil {
		return nil, err
	}
	keys = slices.Clone(keys)
	sorted := slices.Sorted(slices.Values(keys))
	if found.conn == w.conn && found.others == w.others && found.own == w.own &&
		slices.Equal(sorted, w.keys) && time.Now().Before(w.lookNow) {
		return nil, nil
	}
	all := make([]state, len(keys))
	if err := d.statesBy(ctx, conn, keys, all); err != nil {
		return nil, err
	}
	w.conn, w.others, w.own, w.keys, w.lookNow = found.conn, found.others, found.own, sorted, time.Now().Add(lookAfter)
	seen := make([]sqlstore.Seen, len(keys))
	for i, s := range all {
		seen[i] = sqlstore.Seen{Version: s.version, Open: s.state != sqlstore.Held || s.ends <= now()}
	}
	return seen, nil
}

// Marked implements sqlstore.Dialect.
func (d *dialect) Marked(ctx context.Context, keys []string) ([]bool, error) {
	all, err := d.states(ctx, keys)
	marked := make([]bool, len(keys))
	for i, s := range all {
		marked[i] = s.state == sqlstore.Done && s.ends > now()
	}
	return marked, err
}

// Keys implements sqlstore.Dialect.
func (d *dialect) Keys(ctx context.Context, prefix, upTo, after []byte, n int) (keys []string, err error) {
	var end any // a NULL, unless there is one
	if upTo != nil {
		end = upTo
	}
	err = whileLocked(ctx, func() error {
		keys = nil
		return d.query(ctx, func(rows *sql.Rows) error {
			var key []byte
			err := rows.Scan(&key)
			keys = append(keys, string(key))
			return err
		}, "keys", prefix, end, after, now(), n)
	})
	return keys, err
}

// Clean implements sqlstore.Dialect.
func (d *dialect) Clean(ctx context.Context, limit int) (int, error) {
	var deleted int64
	err := d.writer.do(ctx, false, func(ctx context.Context, tx *sql.Conn) error {
		result, err := tx.ExecContext(ctx, d.statements["clean"], today(), now(), limit)
		if err == nil {
			deleted, err = result.RowsAffected()
		}
		return err
	})
	return int(deleted), err
}

// today returns the day since 1970.
func today() int64 { return now() / (24 * time.Hour).Microseconds() }

// query calls f for each row of the answer to a statement.
func (d *dialect) query(ctx context.Context, f func(rows *sql.Rows) error, statement string, args ...any) error {
	rows, err := d.db.QueryContext(ctx, d.statements[statement], args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
