// Package sqlite is a driver.Locker on a file of SQLite, by database/sql. It is for several
// processes of one host, which need no server.
//
//	db, err := sql.Open("sqlite", "app.db?_pragma=busy_timeout(5000)")
//	locker := sqlite.New(db)
//	err = locker.Migrate(ctx) // creates its table, and turns on the write-ahead log
//	g, err := guard.New(locker)
//
// A lease is a row. All times are those of the host's clock. It needs SQLite 3.35, by any driver,
// and the journal mode WAL.
//
// SQLite has one writer at a time. A transaction that writes, also one of the application, delays
// all claims, renewals and releases until it ends. Keep transactions much shorter than the TTL, and
// do not put the file on a network file system.
package sqlite

import (
	"database/sql"
	"regexp"
	"sync/atomic"
	"time"

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

// A dialect has the statements of SQLite.
type dialect struct {
	db         *sql.DB
	table      string
	statements map[string]string
	named      atomic.Pointer[string] // the path as SQLite names it, for errors, or nil
	file       atomic.Pointer[file]   // nil until Prepare has found it
	writer     writer
	watch      watch
}

var (
	_ driver.Locker     = (*Locker)(nil)
	_ driver.Describer  = (*Locker)(nil)
	_ driver.Async      = (*Locker)(nil)
	_ driver.Subscriber = (*Locker)(nil)
	_ driver.Ledger     = (*Locker)(nil)
	_ driver.Inspector  = (*Locker)(nil)

	_ sqlstore.Registrar = (*dialect)(nil)
)

// name is the name of the backend.
const name = "sqlite"

// lookEvery is how often a Locker looks whether the file has changed, while there are waiters.
const lookEvery = 10 * time.Millisecond

// New returns a Locker on the database, which remains the caller's, to be closed after the Guard.
// Create the table before, by Migrate or Schema. guard.New refuses nil and options that cannot
// work.
//
// All processes open the same file. A database in memory works only with a pool of one connection
// (SetMaxOpenConns), in one process. Limit the pool: each connection opens the file.
func New(db *sql.DB, opts ...Option) *Locker {
	d := &dialect{db: db, table: defaultTable}
	l := &Locker{sqlstore.New(name, db, ErrStale, d), d}
	l.LookEvery(lookEvery)
	l.EndCalls()
	d.writer.db = db
	for _, opt := range opts {
		if opt == nil {
			l.Refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(l)
	}
	d.statements = sqlstore.Statements(sources, defaultTable, `"`+d.table+`"`)
	return l
}

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

var tableNames = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// maxTable is the longest name of a table, as on PostgreSQL.
const maxTable = 50

// WithTable sets the name of the table: lower-case letters, digits and underscores, at most 50
// bytes. Processes that use different tables do not exclude each other. Defaults to
// "onerun_leases".
func WithTable(name string) Option {
	return func(l *Locker) {
		if len(name) > maxTable || !tableNames.MatchString(name) {
			l.Refuse("WithTable", name, "must be lower-case letters, digits and underscores, at most 50 bytes")
			return
		}
		l.dialect.table = name
	}
}

// WithAddr sets what errors, and the page of package inspect/web, call the store, such as
// the path of the file. Defaults to "". Errors name the file without it, too. A quorum refuses two
// Lockers with the same address.
func WithAddr(addr string) Option { return func(l *Locker) { l.At(addr) } }
