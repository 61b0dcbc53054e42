// Package sqlite_test runs the suites of guardtest and sqltest on backend/sqlite. It is in this
// module because of the driver, which users of the library do not need.
package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
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

// What most tests here use of the kit.
var (
	claim       = sqltest.Claim
	mustAcquire = sqltest.MustAcquire
	requireKind = sqltest.RequireKind
	within      = sqltest.Within
	exec        = sqltest.Exec
)

const long = sqltest.Long

// open returns a client of a file with its own connections.
func open(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	return sqltest.Pool(t, db, err)
}

// store describes a file. The kernel keeps what a killed process has written, so nothing waits for
// the disk.
func store(path string) *sqltest.Store {
	return &sqltest.Store{
		Open: func(sqltest.DialFunc) (*sql.DB, error) {
			return sql.Open("sqlite", path+"?_pragma=synchronous(OFF)")
		},
		New:   func(db *sql.DB) sqltest.Locker { return sqlite.New(db) },
		Stale: sqlite.ErrStale, Freeze: freeze, OneWriter: true,
		Empty: `DELETE FROM onerun_leases`,
		Older: func(days int) string {
			return strings.ReplaceAll(`UPDATE onerun_leases SET ends = ends - N * 86400000000, forget_on = forget_on - N`, "N", strconv.Itoa(days))
		},
		Schema: sqlite.Schema,
		Tables: map[string]func(db *sql.DB) sqltest.Locker{
			"a word of the language": func(db *sql.DB) sqltest.Locker { return sqlite.New(db, sqlite.WithTable("order")) },
		},
		Keys: []string{"\xff\xfe"},
	}
}

// migrated returns a Locker on a new client of a file, and the client. The table exists.
func migrated(t testing.TB, path string) (*sqlite.Locker, *sql.DB) {
	t.Helper()
	db := open(t, path)
	l := sqlite.New(db)
	require.NoError(t, l.Migrate(t.Context()))
	return l, db
}

// newFile returns the path of a file in a new folder.
func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "leases.db") }
