package sqlite_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	s := store(newFile(t))
	guardtest.Run(t, s.Suite(t, s.Client(t), s.Client(t)))
}

// A database in memory has one connection.
func TestLong_suiteInMemory(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	s := store(":memory:")
	db := s.Client(t)
	db.SetMaxOpenConns(1)
	guardtest.Run(t, s.Suite(t, db, db))
}

// The rows that all stores on SQL have, and those of SQLite alone.
func TestStore(t *testing.T) {
	t.Parallel()
	sqltest.Run(t, func(t testing.TB) *sqltest.Store { return store(newFile(t)) }, map[string]sqltest.Test{
		"settings that cannot work are refused": func(t *testing.T, s *sqltest.Store) {
			db := s.Client(t)
			sqltest.RequireRefused(t, sqlite.New(nil), sqlite.New(db, nil), sqlite.New(db, sqlite.WithTable("")),
				sqlite.New(db, sqlite.WithTable("a.b")), sqlite.New(db, sqlite.WithTable(`x"; DROP TABLE y`)))
		},
		"a check of a fence waits for another writer": func(t *testing.T, s *sqltest.Store) {
			l, _ := s.Migrated(t)
			lease := mustAcquire(t, l, claim("key", long))
			time.AfterFunc(200*time.Millisecond, lock(t, s.Client(t)))
			require.NoError(t, l.InTx(t.Context(), lease, func(*sql.Tx) error { return nil }))
		},
	})
}

// freeze takes all connections of the pools, until the test calls what freeze returns. Reads do not
// wait for a writer, so a lock would stop only some of the calls.
func freeze(t testing.TB, pools ...*sql.DB) (thaw func()) {
	t.Helper()
	var conns []*sql.Conn
	for i, db := range pools {
		if slices.Contains(pools[:i], db) {
			continue
		}
		for range db.Stats().MaxOpenConnections {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			conns = append(conns, conn)
		}
	}
	return func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// lock makes the test the writer of the file, until it calls what lock returns.
func lock(t testing.TB, db *sql.DB) (unlock func()) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), `PRAGMA busy_timeout = 10000`)
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	return func() {
		_, _ = conn.ExecContext(context.Background(), `ROLLBACK`)
		_ = conn.Close()
	}
}
