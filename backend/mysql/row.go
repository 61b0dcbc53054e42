package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An execer is a *sql.DB or a *sql.Tx, and so is a queryer.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// gateOf returns the key of the gate of a key. No key begins with a NUL byte. A check of a fence
// locks the gate: a lock of the row would keep out renewals. A lock of a covering, unique index
// that only grants change lets them pass. But at REPEATABLE READ, MariaDB 10.11 also locks the gap
// before its entry, so new keys wait. A lock by primary key is of one row, and of no gap.
func gateOf(key string) string { return "\x00g" + key }

// A grantedRow is a row with the version of its last grant.
type grantedRow struct {
	*sqlstore.Row
	granted int64
}

// read reads a key, in a transaction or by itself.
func (d *dialect) read(ctx context.Context, on sqlstore.Tx, key string) (r grantedRow, err error) {
	var c sqlstore.Columns
	err = checked(on.QueryRowContext(ctx, d.sql("read", key)).Scan)(
		&c.Now, &c.Version, &c.State, &c.ID, &c.Label, &c.Fence, &c.Last, &c.Ends, &c.Record, &c.Sharing, &r.granted,
	)
	if err == nil {
		r.Row, err = c.Row()
	}
	return r, err
}

// Change implements sqlstore.Dialect.
func (d *dialect) Change(ctx context.Context, key string, decide sqlstore.Decide) error {
	var granted, last int64
	var locked patience
	read := func() (*sqlstore.Row, error) {
		r, err := d.read(ctx, d.db, key)
		granted = r.granted
		return r.Row, err
	}
	return sqlstore.ByVersion(isRace, read, decide, func(r *sqlstore.Row, effect holders.Effect) (bool, error) {
		c := r.Columns()
		if effect == holders.Granted || effect == holders.Joined {
			ok, err := d.grant(ctx, key, c, last == c.Version)
			last = c.Version
			if errors.Is(err, sqlstore.ErrLocked) && locked.lasts(ctx, c) {
				return false, nil
			}
			return ok, err
		}
		n, err := d.exec(ctx, d.db, "write", append(columns(c), granted, key, c.Version)...)
		return n > 0, err
	})
}

// lockTries is how often a grant is tried while the key is locked. That takes about 50 ms, or half
// a second if the key is shared: it may have room, and grants of others lock it again and again.
const lockTries = 15

// A patience tells another grant or a renewal, which locks the key for a moment, from a transaction
// that has checked a fence.
type patience struct {
	version int64 // that was locked
	tries   int
}

// lasts pauses, and reports whether to try again a grant that has found the key locked.
func (p *patience) lasts(ctx context.Context, c sqlstore.Columns) bool {
	if p.version != c.Version {
		*p = patience{version: c.Version}
	}
	p.tries++
	longest := 5 * time.Millisecond
	if c.Sharing != nil {
		longest = time.Duration(p.tries*p.tries) * time.Millisecond
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond + rand.N(longest)):
	}
	return p.tries < lockTries && ctx.Err() == nil
}

// grant writes a row that grants its key, and its gate, by one statement: what a transaction has
// locked stays locked for hours if its client's host vanishes. It waits for no lock, and fails with
// sqlstore.ErrLocked instead: a grant that waited for a transaction that has checked a fence could
// come long after its caller has left.
func (d *dialect) grant(ctx context.Context, key string, c sqlstore.Columns, again bool) (written bool, err error) {
	if c.Version == 0 {
		return d.grantFirst(ctx, key, c)
	}
	args := append([]any{gateOf(key), key, c.Version}, columns(c)...)
	n, err := d.exec(ctx, d.db, "grant", append(args, c.Version+1, c.Version+1, c.Version)...)
	switch number(err) {
	case lockWait, lockNowait:
		return false, sqlstore.ErrLocked
	}
	if err == nil && n == 0 && again { // nobody else has written the row, so it has no gate
		_, err = d.exec(ctx, d.db, "gate_insert", gateOf(key))
		if number(err) == duplicate {
			err = nil
		}
	}
	return n > 0, err
}

// grantFirst writes a key that had no row. The first version of a row is a time, so that it is
// another one than those of an earlier row.
func (d *dialect) grantFirst(ctx context.Context, key string, c sqlstore.Columns) (written bool, err error) {
	_, err = d.exec(ctx, d.db, "insert_both", append(inserted(key, c), gateOf(key), c.Now)...)
	if number(err) != duplicate {
		return err == nil, err
	}
	// Another call has written it, or there is a gate whose row was deleted by hand. A transaction
	// may have locked that.
	free := sqlstore.Columns{Now: c.Now, State: sqlstore.Free, Label: []byte{}, Last: c.Last, Ends: c.Now, ForgetDay: c.ForgetDay}
	_, err = d.exec(ctx, d.db, "insert", inserted(key, free)...)
	if number(err) == duplicate {
		err = nil
	}
	return false, err
}

// columns returns the columns of a row that each write has.
func columns(c sqlstore.Columns) []any {
	return []any{c.State, c.ID, c.Label, c.Fence, c.Last, c.Ends, c.Record, c.Sharing, c.ForgetDay}
}

// inserted returns the columns of a new row.
func inserted(key string, c sqlstore.Columns) []any {
	return append(append([]any{key}, columns(c)...), c.Now, c.Now)
}

// AcquireAlone implements sqlstore.Alone: no statement reads and writes.
func (d *dialect) AcquireAlone(context.Context, driver.Claim) (driver.Answer, error) {
	return driver.Answer{}, sqlstore.ErrShared
}

// ReleaseAlone implements sqlstore.Alone.
func (d *dialect) ReleaseAlone(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	leave, record, done := sqlstore.Free, []byte(nil), 0
	keep := max(sqlstore.Micros(after.Keep), 0)
	switch {
	case keep > 0 && after.Done:
		leave, record, done = sqlstore.Done, append([]byte{}, after.Record...), 1
	case keep > 0:
		leave = sqlstore.Kept
	}
	n, err := d.exec(ctx, d.db, "release", leave, keep, keep, record, done, c.Label, c.Key, c.ID)
	if err == nil && n == 0 || isRace(err) {
		err = sqlstore.ErrShared // or it holds nothing: the row says so
	}
	return n > 0, err
}
