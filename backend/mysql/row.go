package mysql

import (
	"context"
	"database/sql"

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

// gateOf returns the key of the gate of a key. No key begins with a NUL byte.
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
	read := func() (*sqlstore.Row, error) {
		r, err := d.read(ctx, d.db, key)
		return r.Row, err
	}
	return sqlstore.ByVersion(isRace, read, decide, func(r *sqlstore.Row, effect holders.Effect) (bool, error) {
		return d.write(ctx, key, r, effect == holders.Granted || effect == holders.Joined)
	})
}

// write writes the row if its version is still the same.
func (d *dialect) write(ctx context.Context, key string, r *sqlstore.Row, grants bool) (written bool, err error) {
	c, gate := r.Columns(), gateOf(key)
	var n int64
	switch {
	case c.Version == 0:
		return d.insert(ctx, key, c)
	case grants:
		if err = d.probe(ctx, gate); err != nil {
			return false, err
		}
		granted := c.Version + 1
		n, err = d.exec(ctx, d.db, "grant", gate, c.State, c.ID, c.Label, c.Fence, c.Last, c.Ends, c.Record, c.Sharing,
			c.ForgetDay, granted, granted, key, c.Version)
		if err == nil && n == 1 { // there was no gate
			_, err = d.exec(ctx, d.db, "regate", gate, granted)
		}
	default:
		n, err = d.exec(ctx, d.db, "write", c.State, c.ID, c.Label, c.Fence, c.Last, c.Ends, c.Record, c.Sharing,
			c.ForgetDay, key, c.Version)
	}
	return n > 0, err
}

// insert writes a key that had no row. Its first version is a time, so that it is another one than
// those of an earlier row.
func (d *dialect) insert(ctx context.Context, key string, c sqlstore.Columns) (written bool, err error) {
	n, err := d.exec(ctx, d.db, "insert", key, c.State, c.ID, c.Label, c.Fence, c.Last, c.Ends, c.Record, c.Sharing,
		c.Now, c.Now, c.ForgetDay, gateOf(key), c.Now, c.ForgetDay)
	if number(err) == duplicate { // of the row, or of a gate without one
		_, err = d.exec(ctx, d.db, "orphan", key, gateOf(key))
	}
	return n > 0, err
}

// probe fails with sqlstore.ErrLocked if a transaction has checked a fence of the key. A grant that
// waited for it could come long after its caller has left.
func (d *dialect) probe(ctx context.Context, gate string) error {
	_, err := d.db.ExecContext(ctx, d.sql("probe", gate))
	if n := number(err); n == lockWait || n == lockNowait {
		return sqlstore.ErrLocked
	}
	return err
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
