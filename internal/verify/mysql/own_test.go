package mysql_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(GRANT .*?);\n^```")

// A user with the rights of the documentation can do all but create the table.
func TestRights_ofTheDocumentationAreEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/stores/mysql.md")
	require.NoError(t, err)
	found := sqlBlock.FindSubmatch(page)
	require.NotNil(t, found)
	server := mysqltest.Start(t, "max-connections=100")
	dsn := server.Database(t)
	migrated(t, dsn)
	database := dsn[strings.LastIndex(dsn, "/")+1:]
	grant := strings.NewReplacer("app.onerun_leases", database+".onerun_leases", "TO app", "TO app@localhost").Replace(string(found[1]))
	require.NoError(t, server.Exec("CREATE USER app@localhost", grant))
	l := mysql.New(open(t, asUser(t, dsn, "app")))
	require.NoError(t, l.Migrate(t.Context()), "the table exists")
	g, err := guard.New(l)
	require.NoError(t, err)
	nothing := func(context.Context) error { return nil }
	require.NoError(t, g.Do(t.Context(), "key", nothing))
	require.NoError(t, g.Do(t.Context(), "key", nothing, guard.WithOnce(time.Hour)))
	require.NoError(t, g.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		tx, err := open(t, asUser(t, dsn, "app")).BeginTx(ctx, nil)
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
	err = mysql.New(open(t, asUser(t, dsn, "app")), mysql.WithTable("other")).Migrate(t.Context())
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
func TestTable_staysTheSame(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	dsn, other := server.Database(t), server.Database(t)
	database := other[strings.LastIndex(other, "/")+1:]
	database, _, _ = strings.Cut(database, "?")
	l, db := migrated(t, dsn)
	db.SetMaxOpenConns(1)
	mustAcquire(t, l, claim("key", long))
	exec(t, db, "USE "+database)
	busy, err := l.TryAcquire(t.Context(), claim("key", long))
	require.NoError(t, err)
	require.False(t, busy.Reason.IsUndecided())
	named, _ := migrated(t, dsn, mysql.WithTable(database+".leases"))
	mustAcquire(t, named, claim("key", long))
	exec(t, db, "SELECT k FROM "+database+".leases")
}

// A fleet that moves from Redis to MySQL, or back, has both for a while.
func TestLong_suiteWhileAFleetMovesFromRedis(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := redistest.Start(t)
	to := mysqltest.Start(t)
	dsn := to.Database(t)
	s := suite(t, to, open(t, dsn), open(t, dsn))
	rdb := [2]*redis.Client{server.Client(t), server.Client(t)}
	flush, connect, again := s.Flush, s.New, s.Again
	s.Flush = func(t testing.TB) {
		require.NoError(t, rdb[0].FlushAll(t.Context()).Err())
		flush(t)
	}
	s.New = func(t testing.TB) guard.Locker {
		s.Flush(t)
		return both.New(single.New(rdb[0]), connect(t))
	}
	s.Again = func(t testing.TB, _ guard.Locker) guard.Locker { return both.New(single.New(rdb[1]), again(t, nil)) }
	s.Freeze, s.Shares, s.Inspects = nil, nil, false
	s.MinTTL = 150 * time.Millisecond // as in the suite of package both
	guardtest.Run(t, s)
}

// A fleet that moves from MySQL to PostgreSQL, or back, has both for a while.
func TestLong_suiteWhileAFleetMovesToPostgreSQL(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	from := mysqltest.Start(t)
	dsn := from.Database(t)
	s := suite(t, from, open(t, dsn), open(t, dsn))
	to := postgrestest.Start(t)
	var clients [2]*sql.DB
	for i := range clients {
		db, err := sql.Open("pgx", to.DSN())
		require.NoError(t, err)
		db.SetMaxOpenConns(10)
		t.Cleanup(func() { _ = db.Close() })
		clients[i] = db
	}
	require.NoError(t, postgres.New(clients[0]).Migrate(t.Context()))
	flush, connect, again := s.Flush, s.New, s.Again
	s.Flush = func(t testing.TB) {
		exec(t, clients[0], `TRUNCATE onerun_leases`)
		flush(t)
	}
	s.New = func(t testing.TB) guard.Locker {
		s.Flush(t)
		return both.New(connect(t), postgres.New(clients[0]))
	}
	s.Again = func(t testing.TB, _ guard.Locker) guard.Locker {
		return both.New(again(t, nil), postgres.New(clients[1]))
	}
	s.Freeze, s.Shares, s.Inspects = nil, nil, false
	s.MinTTL = 150 * time.Millisecond // as in the suite of package both
	guardtest.Run(t, s)
}
