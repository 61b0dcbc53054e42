// Package postgres is a driver.Locker on PostgreSQL, by database/sql.
//
//	db, err := sql.Open("pgx", "postgres://localhost/app")
//	locker := postgres.New(db)
//	err = locker.Migrate(ctx) // creates its table
//	g, err := guard.New(locker)
//
// A lease is a row. One statement acquires, renews or releases it. All times are those of the
// server's clock. It needs PostgreSQL 12. It uses no advisory locks and keeps no state in a
// session, so it works through a pooler in transaction mode.
//
// A server that fails over to an asynchronous replica can forget its newest commits, and with them
// a lease. The holder learns it at its next renewal. Until then, another process can hold the key
// as well, under a higher fence.
package postgres

import (
	"database/sql"
	"regexp"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps leases in a table. It is safe for concurrent use.
type Locker struct {
	*locker
	dialect *dialect
}

// locker has what the Locker shares with those on other databases.
type locker = sqlstore.Locker

// A dialect has the statements of PostgreSQL.
type dialect struct {
	db         *sql.DB
	locker     *locker
	table      string                // as it was given
	place      atomic.Pointer[place] // nil until resolve has found it
	sender     sender
	noSettings bool // see WithoutSetConfig
}

var (
	_ driver.Locker    = (*Locker)(nil)
	_ driver.Describer = (*Locker)(nil)
	_ driver.Async     = (*Locker)(nil)
	_ driver.Ledger    = (*Locker)(nil)
	_ driver.Inspector = (*Locker)(nil)
	_ sqlstore.Alone   = (*dialect)(nil)
)

// New returns a Locker on the database, which remains the caller's, to be closed after the Guard.
// Create the table before, by Migrate or Schema. guard.New refuses nil and options that cannot
// work.
//
// If the application can use up all connections of db, give the Locker a sql.DB of its own, with
// few connections. Otherwise renewals wait, and leases are lost.
func New(db *sql.DB, opts ...Option) *Locker {
	d := &dialect{db: db, table: defaultTable}
	d.locker = sqlstore.New(name, db, ErrStale, d)
	d.sender.dialect = d
	l := &Locker{d.locker, d}
	for _, opt := range opts {
		if opt == nil {
			l.Refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(l)
	}
	if schema, table := split(d.table); schema != "" {
		d.place.Store(d.newPlace(schema, table, false))
	}
	return l
}

// name is the name of the backend.
const name = "postgres"

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

// tableNames are those that need no quotes, with or without a schema.
var tableNames = regexp.MustCompile(`^([a-z_][a-z0-9_]*\.)?[a-z_][a-z0-9_]*$`)

// maxTable leaves room for the suffix of the index in a name of PostgreSQL.
const maxTable = 50

// WithTable sets the name of the table, such as "onerun_leases" or "jobs.leases": lower-case
// letters, digits and underscores, with a schema or without, at most 50 bytes. Processes that use
// different tables do not exclude each other. Defaults to "onerun_leases".
//
// Name the schema if sessions can have different search paths: with a pooler, or a schema for each
// tenant. Without a schema, the first call finds it by the search path, for all sessions from then
// on. A claim by a session that would find another table is refused (driver.KindSettings). So is
// each call if several schemas have the table, and SET has changed the path.
func WithTable(name string) Option {
	return func(l *Locker) {
		if len(name) > maxTable || !tableNames.MatchString(name) {
			l.Refuse("WithTable", name, "must be lower-case letters, digits and underscores, at most 50 bytes")
			return
		}
		l.dialect.table = name
	}
}

// WithoutSetConfig has statements change no setting, also not for their own transaction. Some
// proxies, such as Amazon RDS Proxy, pin a session to a client that has used set_config, so that
// others cannot share it. Then each release waits for the disk, as a grant does. By default, a
// release that leaves nothing turns off synchronous_commit for its transaction.
func WithoutSetConfig() Option { return func(l *Locker) { l.dialect.noSettings = true } }

// WithAddr sets what errors, and the page of package inspect/web, call the server, such as
// "db-1:5432/app": database/sql does not say it. It must not have a user or a password. Defaults to
// "", so that they name only the backend. A quorum refuses two Lockers with the same address.
func WithAddr(addr string) Option { return func(l *Locker) { l.At(addr) } }
