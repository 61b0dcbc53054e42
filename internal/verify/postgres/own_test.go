package postgres_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// The rows that all stores on SQL have, and those of PostgreSQL alone.
func TestStore(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, "max_connections=300")
	own := map[string]sqltest.Test{
		"a waiter that listens is granted the key after its release": func(t *testing.T, s *sqltest.Store) {
			var both [2]sqltest.Locker
			for i := range both {
				_, db := s.Migrated(t)
				both[i] = postgres.New(db, postgres.WithListener(listenTo(dsnOf(t, db, server))))
			}
			sqltest.WaiterIsServed(t, both[0], both[1])
		},
		"settings that cannot work are refused": func(t *testing.T, s *sqltest.Store) {
			db := s.Client(t)
			sqltest.RequireRefused(t,
				postgres.New(nil), postgres.New(db, postgres.WithListener(nil)), postgres.New(db, postgres.WithTable("")),
				postgres.New(db, postgres.WithTable(`x"; DROP TABLE y`)), postgres.New(db, postgres.WithTable("A")),
				postgres.New(db, postgres.WithTable("a.b.c")))
		},
	}
	for name, test := range map[string]func(t *testing.T, dsn string){
		"the rights in the documentation are enough":          needsFewRights,
		"a release is notified only if there is a waiter":     notifiesWaiters,
		"a listener that has lost its connection is replaced": survivesLossOfListener,
		"errors of the server have a kind":                    errorsOfTheServer,
		"WithoutSetConfig changes no setting":                 withoutSetConfig,
		"the name with its schema is the same table":          nameWithItsSchemaIsTheSameTable,
		"Migrate changes nothing that exists":                 migrateChangesNothingThatExists,
	} {
		own[name] = func(t *testing.T, s *sqltest.Store) { test(t, dsnOf(t, s.Client(t), server)) }
	}
	for name, test := range map[string]func(t *testing.T, server *postgrestest.Server){
		"the search paths of sessions differ":           sessionsOfAPoolDiffer,
		"a search path changes while a lease is held":   pathChangesWhileALeaseIsHeld,
		"each mode of pgx and each form of bytea works": eachModeOfPgxAndEachByteaOutput,
	} {
		own[name] = func(t *testing.T, _ *sqltest.Store) { test(t, server) }
	}
	sqltest.Run(t, func(t testing.TB) *sqltest.Store { return store(server, server.Database(t)) }, own)
}

// dsnOf returns the URL of the database of a client.
func dsnOf(t testing.TB, db *sql.DB, server *postgrestest.Server) (dsn string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT current_database()`).Scan(&dsn))
	return strings.Replace(server.DSN(), "/postgres?", "/"+dsn+"?", 1)
}

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(GRANT .*?)^```")

// The rights that docs/stores/postgres.md lists are enough.
func needsFewRights(t *testing.T, dsn string) {
	_, db := migrated(t, dsn)
	page, err := os.ReadFile("../../../docs/stores/postgres.md")
	require.NoError(t, err)
	grant := sqlBlock.FindSubmatch(page)
	require.NotNil(t, grant)
	exec(t, db, `CREATE ROLE app LOGIN`)
	exec(t, db, string(grant[1]))
	l := postgres.New(open(t, dsn+"&user=app"), postgres.WithListener(listenTo(dsn+"&user=app")))
	require.NoError(t, l.Migrate(t.Context()), "the table exists")

	woken := make(chan struct{}, 100)
	stop := l.Subscribe("key", "", func(time.Duration) { woken <- struct{}{} })
	defer stop()
	<-woken
	c := claim("key", long)
	c.MaxHolders = 2
	g := mustAcquire(t, l, c)
	require.NoError(t, l.InTx(t.Context(), under(c, g.Fence), func(*sql.Tx) error { return nil }))
	_, err = l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.NoError(t, l.Append(t.Context(), "job", driver.Entry{At: 1, Record: []byte("r")}, 1))
	_, err = l.Raise(t.Context(), "job", "n", 1)
	require.NoError(t, err)
	_, err = l.Clean(t.Context(), 10)
	require.NoError(t, err)
	_, _, err = l.Keys(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.NotEmpty(t, l.Warnings(t.Context()), "the server of the tests runs without fsync")
}

// NOTIFY takes a lock of the whole instance when it commits.
func notifiesWaiters(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	waiting, _ := migrated(t, dsn, postgres.WithListener(listenTo(dsn)))
	var notifications atomic.Int64
	listening := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var listener sync.WaitGroup
	listener.Go(func() {
		_ = listenTo(dsn)(ctx, "onerun_leases", func() { close(listening) }, func(string) { notifications.Add(1) })
	})
	<-listening
	cycle := func() {
		c := claim("key", long)
		mustAcquire(t, l, c)
		_, err := l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
	}
	for range 10 {
		cycle()
	}
	woken := make(chan struct{}, 1000)
	stop := waiting.Subscribe("key", "", func(time.Duration) { woken <- struct{}{} })
	<-woken // the subscription has begun
	require.Zero(t, notifications.Load())
	awaitMarks(t, db, 1) // its listener is connected
	cycles := int64(0)
	for deadline := time.Now().Add(time.Minute); notifications.Load() < 5; cycles++ {
		require.True(t, time.Now().Before(deadline), "%d of %d releases were notified", notifications.Load(), cycles)
		cycle()
		<-woken // a look wakes it if the notification has failed
	}
	require.LessOrEqual(t, notifications.Load(), cycles)
	stop()
	cancel()
	listener.Wait()
}

// A listener that has lost its connection is replaced, and waiters are woken meanwhile.
func survivesLossOfListener(t *testing.T, dsn string) {
	l, db := migrated(t, dsn, postgres.WithListener(listenTo(dsn)))
	other, _ := migrated(t, dsn)
	var woken atomic.Int64
	stop := l.Subscribe("key", "", func(time.Duration) { woken.Add(1) })
	defer stop()
	require.Eventually(t, func() bool { return woken.Load() > 0 }, 20*time.Second, 5*time.Millisecond)
	for range 3 {
		sqltest.Eventually(t, db, 1, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE query LIKE 'LISTEN%' AND datname = current_database()`)
		c := claim("key", long)
		mustAcquire(t, other, c)
		before := woken.Load()
		_, err := other.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return woken.Load() > before }, 20*time.Second, 5*time.Millisecond)
	}
}

func errorsOfTheServer(t *testing.T, dsn string) {
	admin := open(t, dsn)
	try := func(l *postgres.Locker) error {
		_, err := l.TryAcquire(within(t, 20*time.Second), claim("key", long))
		return err
	}
	require.NoError(t, postgres.New(admin).Migrate(t.Context()))
	require.NoError(t, try(postgres.New(admin)))

	exec(t, admin, `CREATE ROLE nobody LOGIN`)
	requireKind(t, driver.KindAuth, try(postgres.New(open(t, dsn+"&user=nobody"))))
	require.ErrorContains(t, postgres.New(open(t, dsn+"&user=nobody"), postgres.WithTable("other")).Migrate(t.Context()), "permission denied")
	requireKind(t, driver.KindAuth, try(postgres.New(open(t, dsn+"&user=unknown"))))
	requireKind(t, driver.KindReadOnly, try(postgres.New(open(t, dsn+"&default_transaction_read_only=on"))))

	requireKind(t, driver.KindConnection, try(postgres.New(open(t, dsn+"&port=1"))))

	exec(t, admin, `ALTER ROLE nobody CONNECTION LIMIT 0`)
	requireKind(t, driver.KindLimit, try(postgres.New(open(t, dsn+"&user=nobody"))))

	lock, err := admin.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), `LOCK TABLE onerun_leases`)
	require.NoError(t, err)
	requireKind(t, driver.KindTimeout, try(postgres.New(open(t, dsn+"&lock_timeout=50"))))
	requireKind(t, driver.KindTimeout, try(postgres.New(open(t, dsn+"&statement_timeout=50"))))
	_, err = postgres.New(open(t, dsn)).TryAcquire(within(t, time.Second), claim("key", long))
	requireKind(t, driver.KindTimeout, err)
	require.NoError(t, lock.Rollback())
}
