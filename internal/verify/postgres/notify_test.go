package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// shadow is the path of sessions that call our functions instead of those of the server.
const shadow = "&search_path=shadow,public,pg_catalog"

// shadowed creates a function that fails instead of one of the server.
func shadowed(t testing.TB, db *sql.DB, function, returns string) {
	t.Helper()
	exec(t, db, `CREATE SCHEMA IF NOT EXISTS shadow`)
	exec(t, db, `CREATE FUNCTION shadow.`+function+` RETURNS `+returns+` LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'the queue is full' USING ERRCODE = '54000'; END $$`)
}

// holdNotifyLock has a NOTIFY of the application wait for a standby, with its lock, until the
// test ends.
func holdNotifyLock(t testing.TB, dsn string) {
	t.Helper()
	app := open(t, dsn+"&synchronous_commit=on&application_name=app")
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _, _ = app.ExecContext(ctx, `CREATE TABLE other AS SELECT pg_notify('other', '')::text`) })
	t.Cleanup(func() { cancel(); all.Wait() })
	sqltest.Eventually(t, app, 1, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'app' AND wait_event = 'SyncRep'`)
}

// A notification only makes a hand-off faster. Whatever becomes of it, the key is released, the
// marker is kept, and the waiter learns it before half of the TTL. The pool has one connection.
func TestNotify_neitherFailsNorDelaysWhatCounts(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, "synchronous_standby_names=away", "synchronous_commit=local")
	for name, fault := range map[string]func(t *testing.T, dsn string){
		"its lock is held": func(t *testing.T, dsn string) { holdNotifyLock(t, dsn) },
		"it fails":         func(t *testing.T, dsn string) { shadowed(t, open(t, dsn), "pg_notify(text, text)", "void") },
	} {
		for kind, opts := range map[string][]guard.Option{
			"with a marker": {guard.WithOnce(time.Hour)}, "alone": nil, "limited": {guard.WithLimit(2)},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				dsn := server.Database(t)
				migrated(t, dsn)
				guards := make([]*guard.Guard, 2)
				for i := range guards {
					db := open(t, dsn+shadow)
					db.SetMaxOpenConns(1)
					g, err := guard.New(postgres.New(db, postgres.WithListener(listenTo(dsn))), guard.WithTTL(time.Minute))
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
					guards[i] = g
				}
				const keys = 5
				var begun, holders, waiters sync.WaitGroup
				release := make(chan struct{})
				for i := range keys {
					key := fmt.Sprint("k", i)
					begun.Add(1)
					holders.Go(func() { // it holds all of the key
						among := opts
						if kind == "limited" {
							among = nil
						}
						err := guards[0].Do(t.Context(), key, func(context.Context) error {
							begun.Done()
							<-release
							return nil
						}, among...)
						assert.NoError(t, err)
					})
				}
				begun.Wait()
				for i := range keys {
					waiters.Go(func() {
						err := guards[1].Do(t.Context(), fmt.Sprint("k", i), func(context.Context) error { return nil },
							append([]guard.Option{guard.WithWait(15 * time.Second)}, opts...)...)
						if kind == "with a marker" {
							assert.ErrorIs(t, err, guard.ErrDone)
						} else {
							assert.NoError(t, err)
						}
					})
				}
				end := sync.OnceFunc(func() { close(release) })
				t.Cleanup(end)
				awaitMarks(t, open(t, dsn), keys)
				fault(t, dsn)
				end()
				holders.Wait()
				waiters.Wait()
			})
		}
	}
}

// awaitMarks returns when waiters listen for so many keys.
func awaitMarks(t testing.TB, db *sql.DB, keys int) {
	t.Helper()
	sqltest.Eventually(t, db, keys, `SELECT count(*) FROM onerun_leases WHERE notify_until > now()`)
}

// A release calls set_config, which some proxies do not like, unless it is told not to.
func withoutSetConfig(t *testing.T, dsn string) {
	_, admin := migrated(t, dsn)
	shadowed(t, admin, "set_config(text, text, boolean)", "text")
	for i, opts := range [][]postgres.Option{nil, {postgres.WithoutSetConfig()}} {
		l := postgres.New(open(t, dsn+shadow), append(opts, postgres.WithListener(listenTo(dsn)))...)
		c := claim(fmt.Sprint("k", i), long)
		mustAcquire(t, l, c)
		woken := make(chan struct{}, 100)
		stop := l.Subscribe(c.Key, "", func(time.Duration) { woken <- struct{}{} })
		awaitMarks(t, admin, i+1)
		released, err := l.Release(t.Context(), c, driver.After{})
		require.Equal(t, len(opts) > 0, released, err)
		stop()
	}
}
