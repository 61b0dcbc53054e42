package mysql

import (
	"context"
	"database/sql"
	"embed"
	"math"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
)

// sources has a file for each statement.
//
//go:embed *.sql
var sources embed.FS

// now is the server's clock in microseconds since 1970, when the statement began. It depends
// neither on the time zone of the session nor on a DST change.
const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// A place is the table of a Locker with its database, and the statements for it.
type place struct {
	database, table string
	statements      map[string]string // by name
	// several says why servers accept writes at the same time, so that a lock in one of them does
	// not keep out grants by another, or is "".
	several string
	// maxStatement is how long a statement may be: max_allowed_packet, without what surrounds it.
	maxStatement int
}

// quoted returns the name of the table with its database, as SQL quotes it.
func (p *place) quoted() string { return "`" + p.database + "`.`" + p.table + "`" }

// Prepare implements sqlstore.Dialect.
func (d *dialect) Prepare(ctx context.Context) error {
	if d.place.Load() != nil {
		return nil
	}
	p, err := d.find(ctx)
	if err == nil {
		d.place.CompareAndSwap(nil, p)
	}
	return err
}

// find finds the table. Its database stays the same from then on, whatever a session uses.
func (d *dialect) find(ctx context.Context) (*place, error) {
	p := &place{table: d.table}
	var database sql.NullString
	var version string
	if err := d.db.QueryRowContext(ctx, "SELECT DATABASE(), VERSION()").Scan(&database, &version); err != nil {
		return nil, err
	}
	p.database = database.String
	if schema, table, ok := strings.Cut(d.table, "."); ok {
		p.database, p.table = schema, table
	}
	if p.database == "" {
		return nil, errNoDatabase
	}
	settings, err := d.settings(ctx)
	if err != nil {
		return nil, err
	}
	p.several = severalWriters(version, settings)
	p.maxStatement = math.MaxInt
	if packet, err := strconv.Atoi(settings["max_allowed_packet"]); err == nil {
		p.maxStatement = packet - 1024
	}
	p.statements = sqlstore.Statements(sources, defaultTable, p.quoted(), "CLOCK", now, "NEVER", strconv.Itoa(math.MaxInt32),
		// an administrator's account may write to a replica, too
		"WRITABLE", "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')",
		// a replica may be behind, so its answer does not count
		"STATUS", "CONCAT(CAST(@@global.read_only AS CHAR), ' ', CAST(@@autocommit AS CHAR))")
	return p, nil
}

// severalWriters says why servers of this kind accept writes at the same time, or returns "".
func severalWriters(version string, settings map[string]string) string {
	provider := settings["wsrep_provider"]
	switch {
	case settings["wsrep_on"] == "ON" && provider != "" && provider != "none":
		return "the server is one of a Galera cluster"
	case settings["group_replication_group_name"] != "" && settings["group_replication_single_primary_mode"] == "OFF":
		return "the server is one of a group with several primaries"
	}
	for _, product := range []string{"TiDB", "OceanBase", "Vitess"} {
		if strings.Contains(version, product) {
			return "the server is a " + product
		}
	}
	return ""
}

// settings returns settings of the server. Those that it does not know are missing.
func (d *dialect) settings(ctx context.Context) (map[string]string, error) {
	rows, err := d.db.QueryContext(ctx, `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_provider',
		'group_replication_group_name', 'group_replication_single_primary_mode', 'group_replication_consistency',
		'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format', 'max_allowed_packet')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var setting, value string
		if err := rows.Scan(&setting, &value); err != nil {
			return nil, err
		}
		all[setting] = value
	}
	return all, rows.Err()
}
