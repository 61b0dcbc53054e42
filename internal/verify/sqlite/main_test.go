// Package sqlite_test runs the suite of guardtest, and faults, on backend/sqlite. It is in this
// module because of the driver, which users of the library do not need.
package sqlite_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
)

// memberEnv makes the test binary a member of a fleet: it holds the role.
const memberEnv = "ONERUN_SQLITE_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		fleettest.Serve(text, openMember)
		return
	}
	goleak.VerifyTestMain(m)
}

// open returns a client of a file with its own connections.
func open(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// migrated returns a Locker on a new client of a file, and the client. The table exists.
func migrated(t testing.TB, path string, opts ...sqlite.Option) (*sqlite.Locker, *sql.DB) {
	t.Helper()
	db := open(t, path)
	l := sqlite.New(db, opts...)
	require.NoError(t, l.Migrate(t.Context()))
	return l, db
}

// newFile returns the path of a file in a new folder.
func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "leases.db") }

const long = 30 * time.Second

func claim(key string, ttl time.Duration) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl, Label: "claimed by " + id}
}

// A leased claim is a lease that was acquired without a Guard.
type leased driver.Claim

func (l leased) Claims() []driver.Claim { return []driver.Claim{driver.Claim(l)} }

// mustAcquire makes a claim that must be granted, and returns it under its fence.
func mustAcquire(t testing.TB, l *sqlite.Locker, c driver.Claim) leased {
	t.Helper()
	a, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, a.State)
	c.Fence = a.Fence
	return leased(c)
}

// requireKind asserts that the store could not be asked, and why, with what the error says.
func requireKind(t testing.TB, want driver.StoreErrorKind, says string, err error) {
	t.Helper()
	var store *driver.StoreError
	require.ErrorAs(t, err, &store)
	require.Equal(t, want, store.Kind, err.Error())
	require.ErrorContains(t, err, says)
}

// within returns a context that ends after a time.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}
