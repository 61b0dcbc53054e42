package mysql_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// What an administrator has to mend is named.
func TestErrors_nameTheirRemedy(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=100")
	require.NoError(t, server.Exec("CREATE USER app@localhost IDENTIFIED BY 'secret'", "CREATE DATABASE noright",
		"GRANT SELECT ON noright.* TO app@localhost"))
	dsn := server.Database(t)
	migrated(t, server.DSN("noright"))
	migrated(t, dsn+"?charset=utf8mb4", mysql.WithTable("renamed"))
	db := open(t, dsn)
	exec(t, db, `ALTER TABLE renamed RENAME COLUMN granted TO given`)
	for name, c := range map[string]struct {
		dsn  string
		opts []mysql.Option
		kind driver.StoreErrorKind
		says string
	}{
		"no table":       {dsn, nil, driver.KindSettings, "call Migrate, or apply Schema"},
		"old table":      {dsn, []mysql.Option{mysql.WithTable("renamed")}, driver.KindSettings, "is missing or old"},
		"no database":    {server.DSN("nowhere"), nil, driver.KindSettings, "create the database"},
		"none named":     {server.DSN(""), nil, driver.KindSettings, "name one in the DSN"},
		"wrong password": {asUser(t, dsn, "app:wrong"), nil, driver.KindAuth, "Access denied"},
		"no right":       {asUser(t, server.DSN("noright"), "app:secret"), nil, driver.KindAuth, "denied"},
		"no autocommit":  {server.DSN("noright") + "?autocommit=0", nil, driver.KindSettings, "put autocommit=1 into the DSN"},
		"no server":      {"root@unix(/nonexistent)/x", nil, driver.KindConnection, "nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			l := mysql.New(open(t, c.dsn), c.opts...)
			_, err := l.TryAcquire(within(t, 10*time.Second), claim("key", long))
			requireKind(t, c.kind, err)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestErrors_tooManyConnections(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=10")
	require.NoError(t, server.Exec("CREATE USER app@localhost", "GRANT ALL ON *.* TO app@localhost WITH MAX_USER_CONNECTIONS 1"))
	dsn := server.Database(t)
	migrated(t, dsn)
	dsn = asUser(t, dsn, "app")
	conn, err := open(t, dsn).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = mysql.New(open(t, dsn)).TryAcquire(t.Context(), claim("key", long))
	requireKind(t, driver.KindLimit, err)
}

// A record is at most 1 MiB, which takes twice as much in a statement.
func TestErrors_recordIsLargerThanAPacket(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-allowed-packet=1M")
	dsn := server.Database(t)
	l, _ := migrated(t, dsn)
	c := claim("key", long)
	mustAcquire(t, l, c)
	record := bytes.Repeat([]byte{0xff, 0, '\''}, driver.MaxRecord/3)
	_, err := l.Release(t.Context(), c, driver.After{Keep: long, Done: true, Record: record})
	requireKind(t, driver.KindSettings, err)
	require.NoError(t, server.Exec("SET GLOBAL max_allowed_packet = 16 << 20"))
	l, _ = migrated(t, dsn)
	held, err := l.Release(t.Context(), c, driver.After{Keep: long, Done: true, Record: record})
	require.NoError(t, err)
	require.True(t, held)
	done, err := l.TryAcquire(t.Context(), claim("key", long))
	require.NoError(t, err)
	require.Equal(t, record, done.Record)
}

func TestWarnings_nameWhatLosesLeases(t *testing.T) {
	t.Parallel()
	server := mysqltest.StartPrimary(t)
	l, db := migrated(t, server.Database(t))
	require.NoError(t, server.Exec("SET GLOBAL sync_binlog = 1"))
	require.Empty(t, l.Warnings(t.Context()))
	require.NoError(t, server.Exec("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 2"))
	exec(t, db, `ALTER TABLE onerun_leases ENGINE=Aria`)
	var all []string
	for _, w := range l.Warnings(t.Context()) {
		all = append(all, w.Error())
	}
	text := strings.Join(all, "\n")
	require.Len(t, all, 3, text)
	for _, what := range []string{"the engine Aria", "innodb_flush_log_at_trx_commit is 2", "sync_binlog is 0"} {
		require.Contains(t, text, what)
	}
}

// Rows that are old go, with their gates, and no others do.
func TestClean_deletesOldRows(t *testing.T) {
	t.Parallel()
	l, db := migrated(t, mysqltest.Start(t).Database(t))
	for _, key := range []string{"old", "new", "ahead"} {
		c := claim(key, long)
		mustAcquire(t, l, c)
		_, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
	}
	exec(t, db, `UPDATE onerun_leases SET forget_on = 0 WHERE k LIKE '%old' OR k LIKE '%ahead'`)
	exec(t, db, `UPDATE onerun_leases SET last = last - (3 << 20) WHERE k = 'old'`)
	deleted, err := l.Clean(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, 1, deleted)
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM onerun_leases`).Scan(&n))
	require.Equal(t, 4, n)
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT COUNT(*) FROM onerun_leases WHERE state = 'gate' AND forget_on <= 50000 AND k <> '\0gahead'`).Scan(&n))
	require.Zero(t, n, "a look for old rows need not pass over gates")
}
