package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// defaultTable is the name of the table in the sources of the statements.
const defaultTable = "onerun_leases"

// Schema creates the table and its index if they do not exist, for tools that apply migrations. It
// uses the default name of the table. It is the same as Migrate does.
const Schema = `-- One row for each key that was used in the last day, and for each entry of a log.
CREATE TABLE IF NOT EXISTS onerun_leases (
	key          bytea       PRIMARY KEY,
	state        text        NOT NULL, -- free, held, kept, done, shared; entry, counter
	id           text        NOT NULL DEFAULT '', -- the claim that holds the key alone, or held it
	label        bytea       NOT NULL DEFAULT '',
	fence        bigint      NOT NULL DEFAULT 0,  -- in use by that claim
	last         bigint      NOT NULL DEFAULT 0,  -- the last fence that was issued or reserved
	ends         timestamptz NOT NULL, -- when the lease, the minimum hold or the marker ends
	record       bytea,                -- of the done marker
	sharing      jsonb,                -- the claims that share the key
	notify_until timestamptz,          -- until when a release notifies waiters
	version      bigint      NOT NULL, -- changes with each write
	forget_on    date        NOT NULL  -- when Clean may delete the row
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS onerun_leases_forget_on ON onerun_leases (forget_on);
`

// Migrate creates the table and its index if they do not exist. Several processes may call it at
// the same time. It needs the right to create a table. Without that right, have an administrator
// apply Schema.
func (l *Locker) Migrate(ctx context.Context) error {
	if err := l.Describe().Err; err != nil {
		return err
	}
	if err := l.dialect.migrate(ctx); err != nil {
		return fmt.Errorf("postgres: migrate %s: %w", l.dialect.table, err)
	}
	return nil
}

func (d *dialect) migrate(ctx context.Context) (err error) {
	createTable, createIndex, _ := strings.Cut(strings.TrimSuffix(Schema, ";\n"), ";\n")
	name := `"` + strings.ReplaceAll(d.table, ".", `"."`) + `"`
	if err := create(ctx, d.db, name, strings.ReplaceAll(createTable, defaultTable, name)); err != nil {
		return err
	}
	var p *place
	if schema, table := split(d.table); schema != "" {
		p = d.newPlace(schema, table, false)
	} else if p, err = d.find(ctx); err != nil { // the session of the index can have another path
		return err
	}
	index := quote(p.table + "_forget_on")
	names := strings.NewReplacer(defaultTable+"_forget_on", index, defaultTable, p.quoted())
	return create(ctx, d.db, quote(p.schema)+"."+index, names.Replace(createIndex))
}

// create runs a CREATE … IF NOT EXISTS if what it creates, a quoted name, does not exist: also the
// attempt needs the right to create, and waits for locks. Of several that run at the same time,
// some fail, and try again.
func create(ctx context.Context, db *sql.DB, what, statement string) (err error) {
	for range 10 {
		var exists bool
		err = db.QueryRowContext(ctx, `SELECT to_regclass($1::text) IS NOT NULL`, what).Scan(&exists)
		if err != nil || exists {
			return err
		}
		_, err = db.ExecContext(ctx, statement)
		switch sqlState(err) {
		case "23505", "42P07", "42710", "XX000", "40P01": // others create it at this moment
		default:
			return err
		}
	}
	return err
}

// quote returns a name as SQL does, so that it cannot be a word of the language.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
