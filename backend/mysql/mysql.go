// Package mysql is a driver.Locker on MySQL or MariaDB, by database/sql.
//
//	db, err := sql.Open("mysql", "app:secret@tcp(localhost:3306)/app")
//	locker := mysql.New(db)
//	err = locker.Migrate(ctx) // creates its table
//	g, err := guard.New(locker)
//
// A lease is a row, which is read, and written if nobody else has written it since. All times are
// those of the server's clock. It needs MySQL 8.0 or MariaDB 10.6, with InnoDB. It is tested on
// MariaDB. It uses no GET_LOCK, no prepared statements and no state of a session.
//
// A server that fails over to an asynchronous replica can forget its newest commits, and with them
// a lease. The holder learns it at its next renewal. Until then, another process can hold the key
// as well, under a higher fence.
package mysql

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

// A dialect has the statements of MySQL.
type dialect struct {
	db    *sql.DB
	table string                // as it was given
	place atomic.Pointer[place] // nil until Prepare has found it
}

var (
	_ driver.Locker    = (*Locker)(nil)
	_ driver.Describer = (*Locker)(nil)
	_ driver.Async     = (*Locker)(nil)
	_ driver.Ledger    = (*Locker)(nil)
	_ driver.Inspector = (*Locker)(nil)
	_ sqlstore.Alone   = (*dialect)(nil)
)

// name is the name of the backend.
const name = "mysql"

// New returns a Locker on the database, which remains the caller's, to be closed after the Guard.
// Create the table before, by Migrate or Schema. guard.New refuses nil and options that cannot
// work.
//
// If the application can use up all connections of db, give the Locker a sql.DB of its own, with
// few connections. Otherwise renewals wait, and leases are lost.
func New(db *sql.DB, opts ...Option) *Locker {
	d := &dialect{db: db, table: defaultTable}
	l := &Locker{sqlstore.New(name, db, ErrStale, d), d}
	for _, opt := range opts {
		if opt == nil {
			l.Refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(l)
	}
	return l
}

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

// tableNames are those that WithTable takes, with or without a database.
var tableNames = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,63}\.)?[a-z_][a-z0-9_]{0,63}$`)

// WithTable sets the name of the table, such as "onerun_leases" or "jobs.leases": lower-case
// letters, digits and underscores, with a database or without. Processes that use different tables
// do not exclude each other. Defaults to "onerun_leases". Without a database, it is that of the
// first session, for all sessions from then on.
func WithTable(name string) Option {
	return func(l *Locker) {
		if !tableNames.MatchString(name) {
			l.Refuse("WithTable", name, "must be lower-case letters, digits and underscores, at most 64 bytes")
			return
		}
		l.dialect.table = name
	}
}

// WithAddr sets what errors, and the page of package inspect/web, call the server, such as
// "db-1:3306/app": database/sql does not say it. It must not have a user or a password. Defaults to
// "", so that they name only the backend. A quorum refuses two Lockers with the same address.
func WithAddr(addr string) Option { return func(l *Locker) { l.At(addr) } }
