package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Warner = (*Locker)(nil)

const (
	// oldSnapshot is when a snapshot is old: more than the statements of an application take.
	oldSnapshot = 5 * time.Minute
	// farBehind is how many transactions a slot or a standby is then behind.
	farBehind = 100_000
	// manyDead is how many dead row versions are many.
	manyDead = 10_000
)

// Warnings implements driver.Warner.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	warnings, _ = sqlstore.Ask(ctx, l.locker, driver.OpInspect, "", func(ctx context.Context) (all []error, err error) {
		var fsync, commit, persistence string
		var dead, snapshot, behind, tables int64
		d := l.dialect
		p := d.place.Load()
		err = d.db.QueryRowContext(ctx, p.statements["warnings"], p.quoted(), p.table).
			Scan(&fsync, &commit, &persistence, &dead, &snapshot, &behind, &tables)
		if err != nil {
			return nil, err
		}
		age := time.Duration(snapshot) * time.Second
		for _, w := range []struct {
			is   bool
			what string
		}{
			{fsync != "on", "fsync is off, so a crash can lose leases"},
			{commit == "off", "synchronous_commit is off, so a crash can lose leases"},
			{persistence == "u", "the table " + d.table + " is unlogged, so a crash can lose leases"},
			{age >= oldSnapshot, fmt.Sprintf("a transaction is open for %v, so hot keys become slow, and short leases are lost", age)},
			{behind >= farBehind, fmt.Sprintf("a slot, standby or prepared transaction is %d transactions behind, "+
				"so hot keys become slow, and short leases are lost", behind)},
			{dead >= manyDead, fmt.Sprintf("the table %s has %d dead row versions, so hot keys become slow, "+
				"and short leases are lost", d.table, dead)},
			{tables > 1 && p.table == d.table, fmt.Sprintf("%d schemas have a table %s: name the schema by WithTable, "+
				"or sessions with another search_path are refused", tables, d.table)},
		} {
			if w.is {
				all = append(all, errors.New("postgres: "+w.what))
			}
		}
		return all, nil
	})
	return warnings
}
