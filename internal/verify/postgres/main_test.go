// Package postgres_test runs the suite of guardtest, and faults, on backend/postgres and real
// PostgreSQL servers. It is in this module because of pgx, which users of the library do not need.
package postgres_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		fleettest.Serve(text, openMember)
		return
	}
	goleak.VerifyTestMain(m)
}

// open returns a client with its own connections.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// migrated returns a Locker on a new client, and the client. The table exists.
func migrated(t testing.TB, dsn string, opts ...postgres.Option) (*postgres.Locker, *sql.DB) {
	t.Helper()
	db := open(t, dsn)
	l := postgres.New(db, opts...)
	require.NoError(t, l.Migrate(t.Context()))
	return l, db
}

// listenTo returns the function for WithListener, as the documentation has it.
func listenTo(dsn string) postgres.ListenFunc {
	return func(ctx context.Context, channel string, begun func(), notify func(payload string)) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		begun()
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			notify(n.Payload)
		}
	}
}
