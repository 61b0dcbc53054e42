package sqlite_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	_, here := migrated(t, path)
	_, there := migrated(t, path)
	suite(t, here, there)
}

// A database in memory has one connection.
func TestLong_suiteInMemory(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	db := open(t, ":memory:")
	db.SetMaxOpenConns(1)
	require.NoError(t, sqlite.New(db).Migrate(t.Context()))
	suite(t, db, db)
}

func suite(t *testing.T, here, there *sql.DB) {
	t.Helper()
	flush := func(t testing.TB) {
		require.Eventually(t, func() bool { // an abandoned call may be writing
			_, err := here.ExecContext(t.Context(), `DELETE FROM onerun_leases`)
			return err == nil && here.Stats().InUse+there.Stats().InUse == 0
		}, 20*time.Second, time.Millisecond)
	}
	guardtest.Run(t, guardtest.Backend{
		New:    func(t testing.TB) guard.Locker { flush(t); return sqlite.New(here) },
		Again:  func(testing.TB, guard.Locker) guard.Locker { return sqlite.New(there) },
		Flush:  flush,
		Freeze: func(t testing.TB) func() { return freeze(t, here, there) },
		// A write waits for the disk.
		MinTTL: 20 * time.Millisecond,
		Ledger: true, Inspects: true, Notifies: true,
		Shares: []int{2, 3, driver.Unlimited},
		Keys:   []string{"onerun_leases", "{k}", "{k}:fence", "\xff\xfe"},
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
