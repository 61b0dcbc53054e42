package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// now returns the host's clock, which is the store's, in microseconds since 1970.
func now() int64 { return time.Now().UnixMicro() }

// Change implements sqlstore.Dialect. A claim that is refused need not wait for the writer, so it
// is decided by a plain read first.
func (d *dialect) Change(ctx context.Context, key string, decide sqlstore.Decide) error {
	var r *sqlstore.Row
	err := whileLocked(ctx, func() (err error) {
		r, err = read(ctx, d, d.db, key)
		return err
	})
	if err != nil || decide(r) == holders.Nothing {
		return err
	}
	return d.writer.do(ctx, false, func(ctx context.Context, tx *sql.Conn) error {
		return d.change(ctx, tx, key, decide)
	})
}

// change changes the key in a transaction of the writer.
func (d *dialect) change(ctx context.Context, tx *sql.Conn, key string, decide sqlstore.Decide) error {
	r, err := read(ctx, d, tx, key)
	if err != nil || decide(r) == holders.Nothing {
		return err
	}
	_, err = tx.ExecContext(ctx, d.statements["write"], columns(key, r)...)
	return err
}

// columns returns the columns of a row in the order of write.sql.
func columns(key string, r *sqlstore.Row) []any {
	c := r.Columns()
	var record, sharing any // a NULL, unless there is one
	if c.Record != nil {
		record = c.Record
	}
	if c.Sharing != nil {
		sharing = c.Sharing
	}
	return []any{[]byte(key), c.State, c.ID, c.Label, c.Fence, c.Last, c.Ends, record, sharing, c.Now, c.ForgetDay}
}

// Renew implements sqlstore.Dialect. A row that is not understood is asked for by itself.
func (d *dialect) Renew(ctx context.Context, claims []driver.Claim) ([]sqlstore.Renewal, error) {
	answers := make([]sqlstore.Renewal, len(claims))
	err := d.writer.do(ctx, true, func(ctx context.Context, tx *sql.Conn) error {
		for i, c := range claims {
			err := d.change(ctx, tx, c.Key, func(r *sqlstore.Row) (effect holders.Effect) {
				answers[i].Held, effect = r.Renew(c, r.Now, &r.Last)
				return effect
			})
			var row rowError
			if answers[i].Again = errors.As(err, &row); err != nil && !answers[i].Again {
				return err
			}
		}
		return nil
	})
	return answers, err
}

// read reads a key, by the pool or in a transaction.
func read(ctx context.Context, d *dialect, from sqlstore.Tx, key string) (*sqlstore.Row, error) {
	r, err := scan(from.QueryRowContext(ctx, d.statements["read"], []byte(key)))
	if errors.Is(err, sql.ErrNoRows) {
		c := sqlstore.Columns{Now: now()}
		return c.Row()
	}
	return r, err
}

// scan returns the row that a statement has read.
func scan(answer *sql.Row) (*sqlstore.Row, error) {
	var c sqlstore.Columns
	err := answer.Scan(
		&c.Version, &c.State, &c.ID, &c.Label, &c.Fence, &c.Last, &c.Ends, &c.Record, &c.Sharing,
	)
	if err != nil {
		return nil, err
	}
	c.Now = now()
	if c.State == sqlstore.Done && c.Record == nil {
		c.Record = []byte{} // some drivers read an empty one as NULL
	}
	r, err := c.Row()
	if err != nil {
		return nil, rowError{err}
	}
	return r, nil
}
