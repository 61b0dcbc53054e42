package postgres

import (
	"context"
	"database/sql"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// Change implements sqlstore.Dialect.
func (d *dialect) Change(ctx context.Context, key string, decide sqlstore.Decide) error {
	read := func() (*sqlstore.Row, error) {
		return scan(d.db.QueryRowContext(ctx, d.sql("read"), []byte(key)))
	}
	return sqlstore.ByVersion(isRace, read, decide, func(r *sqlstore.Row, effect holders.Effect) (bool, error) {
		return d.write(ctx, key, r, effect)
	})
}

// Lock implements sqlstore.Dialect.
func (d *dialect) Lock(ctx context.Context, tx sqlstore.Tx, key string) (*sqlstore.Row, error) {
	return scan(tx.QueryRowContext(ctx, d.sql("check"), []byte(key)))
}

// scan returns the row that a statement has read.
func scan(answer *sql.Row) (*sqlstore.Row, error) {
	var standby bool
	var c sqlstore.Columns
	var label, record encoded
	err := answer.Scan(
		&standby, &c.Now, &c.Version, &c.State, &c.ID, &label, &c.Fence, &c.Last, &c.Ends, &record, &c.Sharing,
	)
	if err == nil && standby {
		err = errStandby
	}
	if err != nil {
		return nil, err
	}
	c.Label, c.Record = label, record
	return c.Row()
}

// write writes the row if its version is still the same.
func (d *dialect) write(
	ctx context.Context, key string, r *sqlstore.Row, effect holders.Effect,
) (written bool, err error) {
	c := r.Columns()
	var record any // a NULL, unless it is a record
	if c.Record != nil {
		record = c.Record
	}
	sharing := sql.NullString{String: string(c.Sharing), Valid: c.Sharing != nil}
	grants := effect == holders.Granted || effect == holders.Joined
	var notify, elsewhere bool
	err = d.db.QueryRowContext(ctx, d.sql("write"),
		[]byte(key), c.Version, c.State, c.ID, c.Label, c.Fence, c.Last, c.Ends, record, sharing, grants,
	).Scan(&written, &notify, &elsewhere)
	if err == nil && elsewhere {
		err = d.errElsewhere()
	}
	if err == nil && notify && (effect == holders.Freed || effect == holders.Joined) {
		d.sender.send(sqlstore.Payload(key))
	}
	return written, err
}
