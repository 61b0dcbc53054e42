package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A place is the table of a Locker with its schema, and the statements for it. The sessions of a
// pool can have different search paths, so no statement leaves the schema to the session.
type place struct {
	schema, table string
	statements    map[string]string // by name
}

// split returns the schema of a table's name, or "", and its name in the schema.
func split(table string) (schema, name string) {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return schema, name
	}
	return "", table
}

// newPlace returns the place of a table. unqualified says that the schema was found by the search
// path of a session, so grants compare it with that of theirs.
func (d *dialect) newPlace(schema, table string, unqualified bool) *place {
	p := &place{schema: schema, table: table}
	elsewhere := "false"
	if unqualified {
		elsewhere = fmt.Sprintf("coalesce(to_regclass('%s') <> '%s'::regclass, false)",
			quote(table), strings.ReplaceAll(p.quoted(), "'", "''"))
	}
	asynchronous := "set_config('synchronous_commit', 'off', true)"
	if d.noSettings {
		asynchronous = "NULL"
	}
	p.statements = sqlstore.Statements(sources, defaultTable, p.quoted(), "ELSEWHERE", elsewhere, "ASYNCHRONOUS", asynchronous)
	return p
}

// quoted returns the name of the table with its schema, as SQL quotes it.
func (p *place) quoted() string { return quote(p.schema) + "." + quote(p.table) }

// maxName is how long a name of PostgreSQL can be, in bytes.
const maxName = 63

// channel returns the name of the channel on which releases are notified. It needs no quotes.
func (p *place) channel() string {
	if p.schema == "public" {
		return p.table
	}
	if name := p.schema + "_" + p.table; len(name) <= maxName && tableNames.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(p.schema))
	return p.table + "_" + hex.EncodeToString(sum[:4])
}

// Prepare implements sqlstore.Dialect.
func (d *dialect) Prepare(ctx context.Context) error {
	_, err := d.resolve(ctx)
	return err
}

// resolve returns the place of the table, which the first call finds. It stays the same from then
// on, whatever the sessions of the pool have as their search path.
func (d *dialect) resolve(ctx context.Context) (*place, error) {
	if p := d.place.Load(); p != nil {
		return p, nil
	}
	p, err := d.find(ctx)
	if err != nil {
		return nil, err
	}
	d.place.CompareAndSwap(nil, p)
	return d.place.Load(), nil
}

// find finds the table by the search path of a session. Of several schemas that have the table, it
// takes none by a path that was changed by SET: the next session, or another process, would find
// another one, and two holders would not exclude each other.
func (d *dialect) find(ctx context.Context) (*place, error) {
	var schema string
	var temporary, changed bool
	var tables int
	err := d.db.QueryRowContext(ctx, resolveSource, quote(d.table), d.table).Scan(&schema, &temporary, &tables, &changed)
	switch {
	case err != nil:
		return nil, err
	case temporary:
		return nil, d.misplaced("the session has a temporary table of that name")
	case tables > 1 && changed:
		return nil, d.misplaced("several schemas have the table, and a SET has changed the session's search_path: name the schema")
	}
	return d.newPlace(schema, d.table, true), nil
}

// errElsewhere is the end of a claim whose session would find another table.
func (d *dialect) errElsewhere() error {
	return d.misplaced(fmt.Sprintf("the session's search_path finds the table in another schema than %q: name the schema", d.place.Load().schema))
}

func (d *dialect) misplaced(reason string) error {
	return &driver.SettingError{Setting: "WithTable", Value: d.table, Reason: reason}
}
