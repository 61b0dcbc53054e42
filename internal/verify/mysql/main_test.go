// Package mysql_test runs the suite of guardtest, and faults, on backend/mysql and real MariaDB
// servers. It is in this module because of the driver, which users of the library choose.
package mysql_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a client with its own connections.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// with returns a data source name with more parameters. That of ONERUN_MYSQL_DSN can have some.
func with(dsn, params string) string {
	if strings.Contains(dsn[strings.LastIndex(dsn, "/")+1:], "?") {
		return dsn + "&" + params
	}
	return dsn + "?" + params
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
	_, err := db.ExecContext(within(t, 20*time.Second), statement)
	require.NoError(t, err)
}
