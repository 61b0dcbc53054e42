package postgres

import (
	"context"
	"fmt"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Warner = (*Locker)(nil)

// Warnings implements driver.Warner.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	warnings, _ = ask(ctx, l, driver.OpInspect, "", func(ctx context.Context) (all []error, err error) {
		var fsync, commit, persistence string
		err = l.db.QueryRowContext(ctx, l.sql().warnings, l.place.Load().quoted()).Scan(&fsync, &commit, &persistence)
		if err != nil {
			return nil, err
		}
		warn := func(what string) { all = append(all, fmt.Errorf("postgres: %s, so a crash can lose leases", what)) }
		if fsync != "on" {
			warn("fsync is off")
		}
		if commit == "off" {
			warn("synchronous_commit is off")
		}
		if persistence == "u" {
			warn("the table " + l.table + " is unlogged")
		}
		return all, nil
	})
	return warnings
}
