// Package mysql_test runs the suites of guardtest and sqltest on backend/mysql and real MariaDB
// servers. It is in this module because of the driver, which users of the library choose.
package mysql_test

import (
	"database/sql"
	"net/url"
	"strconv"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// What most tests here use of the kit.
var (
	claim       = sqltest.Claim
	mustAcquire = sqltest.MustAcquire
	requireKind = sqltest.RequireKind
	under       = sqltest.Under
	within      = sqltest.Within
	exec        = sqltest.Exec
)

const long = sqltest.Long

func TestMain(m *testing.M) {
	redistest.AtOnce(4)
	goleak.VerifyTestMain(m)
}

// store describes a database of a server.
func store(server *mysqltest.Server, dsn string) *sqltest.Store {
	s := &sqltest.Store{
		Open: func(dial sqltest.DialFunc) (*sql.DB, error) {
			config, err := driver.ParseDSN(dsn)
			if err != nil {
				return nil, err
			}
			if config.DialFunc = dial; dial != nil {
				config.Logger = &driver.NopLogger{}
			}
			connector, err := driver.NewConnector(config)
			if err != nil {
				return nil, err
			}
			return sql.OpenDB(connector), nil
		},
		New:   func(db *sql.DB) sqltest.Locker { return mysql.New(db) },
		Stale: mysql.ErrStale, Server: server, Idle: isIdle, BusyAtOnce: true,
		Empty:    `TRUNCATE onerun_leases`,
		LockRows: `SELECT * FROM onerun_leases FORCE INDEX (PRIMARY) WHERE k IN ('freed', '\0gfreed', 'k3') FOR UPDATE`,
		Older: func(days int) string {
			return strings.ReplaceAll(`UPDATE onerun_leases SET ends = ends - N * 86400000000, forget_on = forget_on - N`, "N", strconv.Itoa(days))
		},
		Schema: mysql.Schema,
		Tables: map[string]func(db *sql.DB) sqltest.Locker{
			"a word of the language": func(db *sql.DB) sqltest.Locker { return mysql.New(db, mysql.WithTable("order")) },
		},
		Keys: []string{"Ä", "a ", "a", "A", "'`\"\\?"},
	}
	if server.Own() {
		s.Freeze = sqltest.Frozen(server)
	}
	return s
}

// isIdle reports whether no statement runs in the database of a client.
func isIdle(db *sql.DB, _ int) bool {
	var running int
	err := db.QueryRow(`SELECT COUNT(*) FROM information_schema.PROCESSLIST
		WHERE DB = DATABASE() AND COMMAND <> 'Sleep' AND ID <> CONNECTION_ID()`).Scan(&running)
	return err == nil && running == 0
}

// stores returns stores on one server, each with a database of its own.
func stores(t testing.TB, settings ...string) func(t testing.TB) *sqltest.Store {
	server := mysqltest.Start(t, settings...)
	return func(t testing.TB) *sqltest.Store { return store(server, server.Database(t)) }
}

// ownStore returns a store with a server of its own, which the test may break.
func ownStore(t testing.TB) *sqltest.Store {
	server := mysqltest.Start(t)
	server.NeedOwn(t)
	return store(server, server.Database(t))
}

// open returns a client with its own connections.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	return sqltest.Pool(t, db, err)
}

// migrated returns a Locker on a new client, and the client. The table exists.
func migrated(t testing.TB, dsn string, opts ...mysql.Option) (*mysql.Locker, *sql.DB) {
	t.Helper()
	db := open(t, dsn)
	l := mysql.New(db, opts...)
	require.NoError(t, l.Migrate(t.Context()))
	return l, db
}

// with returns a data source name with more parameters. That of ONERUN_MYSQL_DSN can have some.
func with(dsn, params string) string {
	if strings.Contains(dsn[strings.LastIndex(dsn, "/")+1:], "?") {
		return dsn + "&" + params
	}
	return dsn + "?" + params
}

// isolated returns a data source name whose sessions have an isolation level.
func isolated(server *mysqltest.Server, dsn, level string) string {
	setting := "transaction_isolation" // MariaDB before 11.1 has the name that MySQL 8 has no more
	if server.Exec("SET transaction_isolation = '"+level+"'") != nil {
		setting = "tx_isolation"
	}
	return with(dsn, setting+"="+url.QueryEscape("'"+level+"'"))
}
