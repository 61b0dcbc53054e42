// Package postgres_test runs the suites of guardtest and sqltest on backend/postgres and real
// PostgreSQL servers. It is in this module because of pgx, which users of the library do not need.
package postgres_test

import (
	"context"
	"database/sql"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		fleettest.Serve(text, openMember)
		return
	}
	redistest.AtOnce(4)
	goleak.VerifyTestMain(m)
}

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

// store describes a database of a server, on which Lockers have options.
func store(server *postgrestest.Server, dsn string, opts ...postgres.Option) *sqltest.Store {
	return &sqltest.Store{
		Open: func(dial sqltest.DialFunc) (*sql.DB, error) {
			config, err := pgx.ParseConfig(dsn)
			if err != nil {
				return nil, err
			}
			if dial != nil {
				config.DialFunc = pgconn.DialFunc(dial)
			}
			return stdlib.OpenDB(*config), nil
		},
		New:   func(db *sql.DB) sqltest.Locker { return postgres.New(db, opts...) },
		Stale: postgres.ErrStale, Server: server, Idle: isIdle, Freeze: sqltest.Frozen(server),
		Empty:    `TRUNCATE onerun_leases`,
		LockRows: `SELECT FROM onerun_leases WHERE key IN ('freed', 'k3') FOR UPDATE`,
		Older: func(days int) string {
			return strings.ReplaceAll(`UPDATE onerun_leases SET ends = ends - N * interval '1 day', forget_on = forget_on - N`, "N", strconv.Itoa(days))
		},
		Schema: postgres.Schema,
		Tables: map[string]func(db *sql.DB) sqltest.Locker{
			"leases": func(db *sql.DB) sqltest.Locker { return postgres.New(db, postgres.WithTable("leases")) },
			"of a schema": func(db *sql.DB) sqltest.Locker {
				_, _ = db.Exec(`CREATE SCHEMA IF NOT EXISTS jobs`) // or Migrate fails
				return postgres.New(db, postgres.WithTable("jobs.leases"))
			},
			"a word of the language": func(db *sql.DB) sqltest.Locker { return postgres.New(db, postgres.WithTable("user")) },
		},
	}
}

// isIdle reports whether the server has ended the sessions of a database that its clients have
// given up: lib/pq ends a call only when it has the answer.
func isIdle(db *sql.DB, connections int) bool {
	var sessions int
	err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
		AND datname = current_database() AND query NOT LIKE 'LISTEN%'`).Scan(&sessions)
	return err == nil && sessions <= max(connections, 1)
}

// ownStore returns a store with a server of its own, which the test may break.
func ownStore(t testing.TB) *sqltest.Store {
	server := postgrestest.Start(t)
	return store(server, server.DSN())
}

// suite returns what the suite needs to know about a store.
func suite(t testing.TB, s *sqltest.Store) guardtest.Backend {
	t.Helper()
	return s.Suite(t, s.Client(t), s.Client(t))
}

// open returns a client with its own connections.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	return sqltest.Pool(t, db, err)
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
