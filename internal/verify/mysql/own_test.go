package mysql_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(GRANT .*?);\n^```")

// A user with the rights of the documentation can do all but create the table.
func needsFewRights(t *testing.T, server *mysqltest.Server) {
	page, err := os.ReadFile("../../../docs/stores/mysql.md")
	require.NoError(t, err)
	found := sqlBlock.FindSubmatch(page)
	require.NotNil(t, found)
	dsn := server.Database(t)
	migrated(t, dsn)
	database := dsn[strings.LastIndex(dsn, "/")+1:]
	grant := strings.NewReplacer("app.onerun_leases", database+".onerun_leases", "TO app", "TO few@localhost").Replace(string(found[1]))
	require.NoError(t, server.Exec("CREATE USER few@localhost", grant))
	l := mysql.New(open(t, asUser(t, dsn, "few")))
	require.NoError(t, l.Migrate(t.Context()), "the table exists")
	g, err := guard.New(l)
	require.NoError(t, err)
	nothing := func(context.Context) error { return nil }
	require.NoError(t, g.Do(t.Context(), "key", nothing))
	require.NoError(t, g.Do(t.Context(), "key", nothing, guard.WithOnce(time.Hour)))
	require.NoError(t, g.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		tx, err := open(t, asUser(t, dsn, "few")).BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		return l.CheckFence(ctx, tx, lease)
	}))
	_, err = l.Raise(t.Context(), "job", "n", 7)
	require.NoError(t, err)
	_, err = l.Clean(t.Context(), 100)
	require.NoError(t, err)
	require.Empty(t, l.Warnings(t.Context()))
	require.NoError(t, g.Close(t.Context()))
	err = mysql.New(open(t, asUser(t, dsn, "few")), mysql.WithTable("other")).Migrate(t.Context())
	require.ErrorContains(t, err, "denied")
}

// asUser returns a data source name of another user, with a password or without.
func asUser(t testing.TB, dsn, user string) string {
	t.Helper()
	_, at, found := strings.Cut(dsn, "@")
	require.True(t, found)
	return user + "@" + at
}

// A session that uses another database changes nothing, and a table can be in another one.
func otherDatabase(t *testing.T, server *mysqltest.Server) {
	dsn, other := server.Database(t), server.Database(t)
	database, _, _ := strings.Cut(other[strings.LastIndex(other, "/")+1:], "?")
	l, db := migrated(t, dsn)
	db.SetMaxOpenConns(1)
	mustAcquire(t, l, claim("key", long))
	exec(t, db, "USE "+database)
	sqltest.RequireState(t, driver.Busy, l, "key")
	named, _ := migrated(t, dsn, mysql.WithTable(database+".leases"))
	mustAcquire(t, named, claim("key", long))
	exec(t, db, "SELECT k FROM "+database+".leases")
}

// A claim that shares a key waits half a second for others that lock it: they may leave room. One
// that wants a key alone waits for less than 100 ms.
func waitsForRoom(t *testing.T, s *sqltest.Store) {
	l, db := s.Migrated(t)
	share := func() driver.Claim {
		c := claim("key", long)
		c.MaxHolders = 2
		return c
	}
	mustAcquire(t, l, share())
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), `SELECT 1 FROM onerun_leases WHERE k = 'key' FOR UPDATE`)
	require.NoError(t, err)
	began := time.Now()
	c := share()
	busy, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Busy, busy.State)
	require.Greater(t, time.Since(began), 100*time.Millisecond)
	require.NoError(t, tx.Rollback())
	sqltest.AwaitGrant(t, l, c)
}
