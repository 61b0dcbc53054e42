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
	"bytes"
	"context"
	"database/sql"
	"errors"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps leases in a table. It is safe for concurrent use.
type Locker struct {
	db    *sql.DB
	table string                // as it was given
	place atomic.Pointer[place] // nil until resolve has found it
	wrong error                 // a setting of New cannot work

	subscriber subscriber
	sender     sender
	merger     merger
	noSettings bool // see WithoutSetConfig
	calls      gate
	// transactions bounds how many calls of InTx run.
	transactions gate
	releases     atomic.Uint64
	cleaning     atomic.Bool
}

var (
	_ driver.Locker    = (*Locker)(nil)
	_ driver.Describer = (*Locker)(nil)
)

// New returns a Locker on the database, which remains the caller's, to be closed after the Guard.
// Create the table before, by Migrate or Schema. guard.New refuses nil and options that cannot
// work.
//
// If the application can use up all connections of db, give the Locker a sql.DB of its own, with
// few connections. Otherwise renewals wait, and leases are lost.
func New(db *sql.DB, opts ...Option) *Locker {
	l := &Locker{db: db, table: defaultTable}
	l.subscriber.locker, l.sender.locker, l.merger.locker = l, l, l
	l.calls.db, l.transactions.db = db, db
	for _, opt := range opts {
		if opt == nil {
			l.wrong = &driver.SettingError{Setting: "Option", Value: "nil", Reason: "must not be nil"}
			continue
		}
		opt(l)
	}
	if db == nil {
		l.wrong = &driver.SettingError{Setting: "db", Reason: "must not be nil"}
	}
	if schema, name := split(l.table); schema != "" {
		l.place.Store(l.newPlace(schema, name, false))
	}
	return l
}

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
			l.wrong = &driver.SettingError{
				Setting: "WithTable", Value: name,
				Reason: "must be lower-case letters, digits and underscores, at most 50 bytes",
			}
			return
		}
		l.table = name
	}
}

// WithoutSetConfig has statements change no setting, also not for their own transaction. Some
// proxies, such as Amazon RDS Proxy, pin a session to a client that has used set_config, so that
// others cannot share it. Then each release waits for the disk, as a grant does. By default, a
// release that leaves nothing turns off synchronous_commit for its transaction.
func WithoutSetConfig() Option { return func(l *Locker) { l.noSettings = true } }

// Describe implements driver.Describer. Braces are allowed in keys. Only the ID distinguishes
// claims. Any number of them can share a key.
func (l *Locker) Describe() driver.Description {
	return driver.Description{
		Name: "postgres", Err: l.wrong, CheckKey: driver.CheckKeyBytes, Shares: func(int) error { return nil },
	}
}

// TryAcquire implements driver.Locker.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	return ask(ctx, l, driver.OpAcquire, c.Key, func(ctx context.Context) (answer driver.Answer, err error) {
		err = errShared
		if isPlain(c) {
			answer, err = l.acquireAlone(ctx, c)
		}
		if errors.Is(err, errShared) {
			answer, err = change(ctx, l, c.Key, func(r *row) (driver.Answer, holders.Effect) { return r.acquire(c) })
		}
		if errors.Is(err, errRaces) {
			return driver.Answer{State: driver.Busy, Reason: driver.Undecided, Left: time.Millisecond}, nil
		}
		return answer, err
	})
}

// Release implements driver.Locker.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	after.Record = bytes.Clone(after.Record) // the statement may outlast the call
	released, err := ask(ctx, l, driver.OpRelease, c.Key, func(ctx context.Context) (bool, error) {
		if c.MaxHolders <= 1 {
			if held, err := l.releaseAlone(ctx, c, after); !errors.Is(err, errShared) {
				return held, err
			}
		}
		return change(ctx, l, c.Key, func(r *row) (bool, holders.Effect) { return r.Release(c, after, r.now) })
	})
	if released {
		l.subscriber.notify(payload(c.Key)) // the server notifies other processes
		l.cleanSometimes()
	}
	return released, err
}
