package mysql

import (
	"context"
	"errors"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Warner = (*Locker)(nil)

// Warnings implements driver.Warner.
func (l *Locker) Warnings(ctx context.Context) (warnings []error) {
	d := l.dialect
	warnings, _ = sqlstore.Ask(ctx, l.locker, driver.OpInspect, "", func(ctx context.Context) (all []error, err error) {
		set, err := d.settings(ctx)
		if err != nil {
			return nil, err
		}
		var engine string
		p := d.place.Load()
		err = d.query(ctx, d.db, func(scan sqlstore.ScanFunc) error { return scan(&engine) }, "warnings", p.database, p.table)
		if err != nil {
			return nil, err
		}
		flush, sync := set["innodb_flush_log_at_trx_commit"], set["sync_binlog"]
		for _, w := range []struct {
			is   bool
			what string
		}{
			{engine != "" && !strings.EqualFold(engine, "InnoDB"), // "" if there is no table
				"the table " + d.table + " has the engine " + engine + ", so leases are lost: it needs InnoDB"},
			{flush != "" && flush != "1", "innodb_flush_log_at_trx_commit is " + flush + ", so a crash can lose leases"},
			{set["log_bin"] == "ON" && sync != "1", "sync_binlog is " + sync + ", so a crash can lose leases that replicas do not have"},
			{set["log_bin"] == "ON" && set["binlog_format"] == "STATEMENT", // see WRITABLE
				"binlog_format is STATEMENT, so read-only replicas lack renewals, releases and done markers: set MIXED or ROW"},
			{set["group_replication_group_name"] != "" && set["group_replication_consistency"] == "EVENTUAL",
				"group_replication_consistency is EVENTUAL, so a new primary can miss a done marker at first: set BEFORE_ON_PRIMARY_FAILOVER"},
			{p.several != "", p.several + ", so CheckFence and InTx are refused"},
		} {
			if w.is {
				all = append(all, errors.New("mysql: "+w.what))
			}
		}
		return all, nil
	})
	return warnings
}
