package mysql

import (
	"context"
	"fmt"
	"strings"
)

// defaultTable is the name of the table in the sources of the statements.
const defaultTable = "onerun_leases"

// Schema creates the table if it does not exist, for tools that apply migrations. It uses the
// default name of the table. It is the same as Migrate does.
const Schema = `-- Two rows for each key that was used in the last day, and one for each entry of a log. The second
-- row of a key is its gate: only grants change it.
CREATE TABLE IF NOT EXISTS onerun_leases (
	k         VARBINARY(2048) NOT NULL PRIMARY KEY, -- the key
	state     VARBINARY(16)   NOT NULL, -- free, held, kept, done, shared; gate; entry, counter
	id        VARBINARY(255)  NOT NULL, -- the claim that holds the key alone, or held it
	label     BLOB            NOT NULL,
	fence     BIGINT          NOT NULL, -- in use by that claim
	last      BIGINT          NOT NULL, -- the last fence that was issued or reserved
	ends      BIGINT          NOT NULL, -- when the lease, the minimum hold or the marker ends, in microseconds since 1970
	record    LONGBLOB,                 -- of the done marker
	sharing   LONGBLOB,                 -- the claims that share the key, in JSON
	version   BIGINT          NOT NULL, -- changes with each write
	granted   BIGINT          NOT NULL, -- the version of the last grant: also in the gate
	forget_on BIGINT          NOT NULL, -- the day since 1970 from which Clean may delete the row
	KEY forget_on (forget_on)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
`

// Migrate creates the table if it does not exist. Several processes may call it at the same time.
// It needs the right to create a table. Without that right, have an administrator apply Schema.
func (l *Locker) Migrate(ctx context.Context) error {
	if err := l.Describe().Err; err != nil {
		return err
	}
	if err := l.dialect.migrate(ctx); err != nil {
		_, err = l.dialect.Explain("", err)
		return fmt.Errorf("mysql: migrate %s: %w", l.dialect.table, err)
	}
	return nil
}

// migrate sends no DDL if the table exists: that needs rights, and waits for locks.
func (d *dialect) migrate(ctx context.Context) error {
	p, err := d.find(ctx)
	if err != nil {
		return err
	}
	if _, err := d.db.ExecContext(ctx, "SELECT 1 FROM "+p.quoted()+" LIMIT 0"); number(err) != noSuchTable {
		return err
	}
	_, statement, _ := strings.Cut(Schema, "CREATE TABLE")
	statement = "CREATE TABLE" + strings.TrimSuffix(statement, ";\n")
	_, err = d.db.ExecContext(ctx, strings.Replace(statement, defaultTable, p.quoted(), 1))
	return err
}
