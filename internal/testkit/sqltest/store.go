// Package sqltest has the tests that all backends on SQL pass: fences in the transactions of users,
// faults, pools and rows. A backend describes itself by a Store, in the module that has its driver.
//
//	sqltest.Run(t, func(t testing.TB) *sqltest.Store { … }, nil)
//
// What every backend has to pass, also one without SQL, is in guardtest. What only one of them can
// have is in its own package.
package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker is that of a backend on SQL.
type Locker interface {
	driver.Locker
	driver.Async
	driver.Subscriber
	driver.Ledger
	driver.Inspector
	Migrate(ctx context.Context) error
	CheckFence(ctx context.Context, tx Tx, lease Leased) error
	InTx(ctx context.Context, lease Leased, f func(tx *sql.Tx) error) error
	Clean(ctx context.Context, limit int) (deleted int, err error)
	Warnings(ctx context.Context) []error
}

// A Tx and a Leased are what the backends take.
type (
	Tx = interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	Leased = interface{ Claims() []driver.Claim }
)

// A Store is a database that is empty, and a backend. Without what is not set, tests are left out.
type Store struct {
	// Open returns a client that is not yet connected. It dials by the function, unless that is
	// nil, or there is nothing to dial.
	Open  func(dial DialFunc) (*sql.DB, error)
	New   func(db *sql.DB) Locker
	Stale error // the backend's ErrStale

	// Server runs the database, for tests that break it.
	Server Server
	// Idle reports whether the server has ended what clients with so many connections had asked
	// for. It is nil if there is no server.
	Idle func(db *sql.DB, connections int) bool
	// Freeze stops all calls of the clients, until thaw is called. It is nil if it cannot.
	Freeze func(t testing.TB, clients ...*sql.DB) (thaw func())

	// OneWriter means that a transaction that has checked a fence is the only one that writes.
	OneWriter bool
	// BusyAtOnce means that a claim of a key that a transaction keeps is busy. Otherwise it waits.
	BusyAtOnce bool

	// Empty is a statement that deletes all rows. Others, which may be empty, lock the rows of the
	// keys "freed" and "k3", and make all rows so many days older.
	Empty, LockRows string
	Older           func(days int) string
	// Schema creates the table, and Tables are names of others that Migrate creates.
	Schema string
	Tables map[string]func(db *sql.DB) Locker
	Keys   []string // for guardtest.Backend
}

// A DialFunc connects to a server.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A Server is one that a test may break.
type Server interface {
	Kill(t testing.TB)
	Restart(t testing.TB)
	Freeze(t testing.TB)
	Thaw()
}

// Client returns a client with connections of its own.
func (s *Store) Client(t testing.TB) *sql.DB {
	t.Helper()
	return s.dialed(t, nil)
}

func (s *Store) dialed(t testing.TB, dial DialFunc) *sql.DB {
	t.Helper()
	db, err := s.Open(dial)
	return Pool(t, db, err)
}

// Pool gives a client connections to keep, and closes it when the test ends.
func Pool(t testing.TB, db *sql.DB, err error) *sql.DB {
	t.Helper()
	require.NoError(t, err)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Migrated returns a Locker on a new client, and the client. The table exists.
func (s *Store) Migrated(t testing.TB) (Locker, *sql.DB) {
	t.Helper()
	db := s.Client(t)
	l := s.New(db)
	require.NoError(t, l.Migrate(t.Context()))
	return l, db
}

// requireOutdated asserts that a fence was refused to a transaction that has read before others
// have written: it may be told that it cannot write any more.
func (s *Store) requireOutdated(t testing.TB, err error) {
	t.Helper()
	if s.OneWriter && !errors.Is(err, s.Stale) {
		RequireKind(t, driver.KindTimeout, err)
		return
	}
	require.ErrorIs(t, err, s.Stale)
}
