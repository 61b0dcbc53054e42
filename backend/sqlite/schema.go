package sqlite

import (
	"context"
	"embed"
	"fmt"
	"strings"
)

// sources has a file for each statement.
//
//go:embed *.sql
var sources embed.FS

// defaultTable is the name of the table in the sources of the statements.
const defaultTable = "onerun_leases"

// Schema creates the table and its index if they do not exist, for tools that apply migrations. It
// uses the default name of the table. Migrate does the same, and turns on the write-ahead log
// (PRAGMA journal_mode = WAL), which stays on in the file.
const Schema = `-- One row for each key that was used in the last day, and for each entry of a log.
-- Times are in microseconds since 1970.
CREATE TABLE IF NOT EXISTS onerun_leases (
	key       BLOB    NOT NULL PRIMARY KEY,
	state     TEXT    NOT NULL, -- free, held, kept, done, shared; entry, counter
	id        TEXT    NOT NULL, -- the claim that holds the key alone, or held it
	label     BLOB    NOT NULL,
	fence     INTEGER NOT NULL, -- in use by that claim
	last      INTEGER NOT NULL, -- the last fence that was issued or reserved
	ends      INTEGER NOT NULL, -- when the lease, the minimum hold or the marker ends
	record    BLOB,             -- of the done marker
	sharing   BLOB,             -- the claims that share the key, in JSON
	version   INTEGER NOT NULL, -- changes with each write
	forget_on INTEGER NOT NULL  -- the day since 1970 on which Clean may delete the row
);
CREATE INDEX IF NOT EXISTS onerun_leases_forget_on ON onerun_leases (forget_on);
`

// Migrate turns on the write-ahead log, and creates the table and its index if they do not exist.
// Several processes may call it at the same time.
func (l *Locker) Migrate(ctx context.Context) error {
	if err := l.Describe().Err; err != nil {
		return err
	}
	d := l.dialect
	err := whileLocked(ctx, func() error { return d.migrate(ctx) })
	if err != nil {
		_, err = d.Explain("", err)
		return fmt.Errorf("sqlite: migrate %s: %w", d.table, err)
	}
	return nil
}

func (d *dialect) migrate(ctx context.Context) error {
	path, err := d.path(ctx)
	if err != nil {
		return err
	}
	if path != "" {
		var mode string
		err := d.db.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode)
		if err != nil {
			return err
		}
		if err := checkMode(mode); err != nil {
			return err
		}
	}
	names := strings.NewReplacer(
		defaultTable+"_forget_on", `"`+d.table+`_forget_on"`, defaultTable, `"`+d.table+`"`)
	for statement := range strings.SplitSeq(strings.TrimSuffix(Schema, ";\n"), ";\n") {
		if _, err := d.db.ExecContext(ctx, names.Replace(statement)); err != nil {
			return err
		}
	}
	_, err = d.db.ExecContext(ctx, d.statements["read"], []byte{}) // an older table lacks columns
	return err
}
