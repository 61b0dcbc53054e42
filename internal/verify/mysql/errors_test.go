package mysql_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// A server with users of its own, which that of ONERUN_MYSQL_DSN need not have.
func TestUsers(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=100")
	for name, test := range map[string]func(t *testing.T, server *mysqltest.Server){
		"errors name their remedy":                   errorsNameTheirRemedy,
		"too many connections":                       tooManyConnections,
		"a record is larger than a packet":           recordIsLargerThanAPacket,
		"the rights in the documentation are enough": needsFewRights,
	} {
		t.Run(name, func(t *testing.T) { test(t, server) })
	}
}

// What an administrator has to mend is named.
func errorsNameTheirRemedy(t *testing.T, server *mysqltest.Server) {
	require.NoError(t, server.Exec("CREATE USER app@localhost IDENTIFIED BY 'secret'", "CREATE DATABASE noright",
		"GRANT SELECT ON noright.* TO app@localhost"))
	dsn := server.Database(t)
	migrated(t, server.DSN("noright"))
	migrated(t, dsn+"?charset=utf8mb4", mysql.WithTable("renamed"))
	db := open(t, dsn)
	exec(t, db, `ALTER TABLE renamed RENAME COLUMN granted TO given`)
	on := func(dsn string, opts ...mysql.Option) func(t *testing.T) sqltest.Locker {
		return func(t *testing.T) sqltest.Locker { return mysql.New(open(t, dsn), opts...) }
	}
	sqltest.Refuses(t, map[string]sqltest.Refusal{
		"no table":       sqltest.Because(driver.KindSettings, on(dsn), "call Migrate, or apply Schema"),
		"old table":      sqltest.Because(driver.KindSettings, on(dsn, mysql.WithTable("renamed")), "is missing or old"),
		"no database":    sqltest.Because(driver.KindSettings, on(server.DSN("nowhere")), "create the database"),
		"none named":     sqltest.Because(driver.KindSettings, on(server.DSN("")), "name one in the DSN"),
		"wrong password": sqltest.Because(driver.KindAuth, on(asUser(t, dsn, "app:wrong")), "Access denied"),
		"no right":       sqltest.Because(driver.KindAuth, on(asUser(t, server.DSN("noright"), "app:secret")), "denied"),
		"no autocommit":  sqltest.Because(driver.KindSettings, on(server.DSN("noright")+"?autocommit=0"), "put autocommit=1 into the DSN"),
		"no server":      sqltest.Because(driver.KindConnection, on("root@unix(/nonexistent)/x"), "nonexistent"),
	})
}

func tooManyConnections(t *testing.T, server *mysqltest.Server) {
	require.NoError(t, server.Exec("CREATE USER one@localhost", "GRANT ALL ON *.* TO one@localhost WITH MAX_USER_CONNECTIONS 1"))
	dsn := server.Database(t)
	migrated(t, dsn)
	dsn = asUser(t, dsn, "one")
	conn, err := open(t, dsn).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = mysql.New(open(t, dsn)).TryAcquire(t.Context(), claim("key", long))
	requireKind(t, driver.KindLimit, err)
}

// A record is at most 1 MiB, which takes twice as much in a statement.
func recordIsLargerThanAPacket(t *testing.T, server *mysqltest.Server) {
	require.NoError(t, server.Exec("SET GLOBAL max_allowed_packet = 1 << 20"))
	dsn := server.Database(t)
	l, _ := migrated(t, dsn)
	c := claim("key", long)
	mustAcquire(t, l, c)
	record := bytes.Repeat([]byte{0xff, 0, '\''}, driver.MaxRecord/3)
	_, err := l.Release(t.Context(), c, driver.After{Keep: long, Done: true, Record: record})
	requireKind(t, driver.KindSettings, err)
	require.NoError(t, server.Exec("SET GLOBAL max_allowed_packet = 16 << 20"))
	l, _ = migrated(t, dsn)
	_, err = l.Release(t.Context(), c, driver.After{Keep: long, Done: true, Record: record})
	require.NoError(t, err)
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
	sqltest.RequireWarnings(t, l, "the engine Aria", "innodb_flush_log_at_trx_commit is 2", "sync_binlog is 0")
}
