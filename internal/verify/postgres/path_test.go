package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// sessions returns a client of which the nth session begins with the nth statement, and so on
// from the first one.
func sessions(t testing.TB, dsn string, begin ...string) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	var n atomic.Int64
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, begin[int(n.Add(1)-1)%len(begin)])
		return err
	}))
	db.SetMaxOpenConns(len(begin))
	db.SetMaxIdleConns(len(begin))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// inSchemas creates schemas that have the table.
func inSchemas(t testing.TB, dsn string, names ...string) {
	t.Helper()
	admin := open(t, dsn)
	for _, name := range names {
		exec(t, admin, "CREATE SCHEMA "+pgx.Identifier{name}.Sanitize())
		migrated(t, dsn+"&search_path="+url.PathEscape(pgx.Identifier{name}.Sanitize()))
	}
}

// Two holders of a key do not exist, and no lease is lost, whatever the search paths are.
func sessionsOfAPoolDiffer(t *testing.T, server *postgrestest.Server) {
	a, b, same := "SET search_path = a", "SET search_path = b", "SELECT 1"
	for name, c := range map[string]struct {
		tables []string
		begin  [2][]string // the sessions of each process
		runs   bool        // whether calls run
	}{
		"both processes begin with one of two":   {[]string{"a", "b"}, [2][]string{{a, b}, {a, b}}, false},
		"each begins with another of two":        {[]string{"a", "b"}, [2][]string{{a, b}, {b, a}}, false},
		"some sessions have the path of the URL": {[]string{"x", "b"}, [2][]string{{same, b}, {b, same}}, true},
		"one schema has the table":               {[]string{"a"}, [2][]string{{a, b}, {b, a}}, true},
		"one schema has it, or the URL's path":   {[]string{"x"}, [2][]string{{same, b}, {same, a}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := server.Database(t)
			inSchemas(t, dsn, c.tables...)
			var runs, refused atomic.Int64
			run := func(g *guard.Guard, key string, most int64, inside *atomic.Int64, opts ...guard.Option) {
				for range 10 {
					err := g.Do(t.Context(), key, func(context.Context) error {
						assert.LessOrEqual(t, inside.Add(1), most)
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						runs.Add(1)
						return nil
					}, opts...)
					if err != nil {
						refused.Add(1)
						var store *driver.StoreError
						if assert.ErrorAs(t, err, &store) {
							assert.Equal(t, driver.KindSettings, store.Kind)
						}
						assert.ErrorContains(t, err, "WithTable")
					}
				}
			}
			var alone, limited atomic.Int64
			var all sync.WaitGroup
			for _, begin := range c.begin {
				g, err := guard.New(postgres.New(sessions(t, dsn+"&search_path=x", begin...)), guard.WithWait(20*time.Second))
				require.NoError(t, err)
				t.Cleanup(func() { _ = g.Close(context.Background()) }) // refused claims stay
				for range 4 {
					all.Go(func() { run(g, "alone", 1, &alone) })
					all.Go(func() { run(g, "limited", 2, &limited, guard.WithLimit(2)) })
				}
			}
			all.Wait()
			t.Logf("%d runs, %d refused", runs.Load(), refused.Load())
			require.Equal(t, c.runs, runs.Load() > 0)
		})
	}
}

// Renewals, releases and checks use the table that has the lease. Only a grant is refused.
func pathChangesWhileALeaseIsHeld(t *testing.T, server *postgrestest.Server) {
	for _, name := range []string{"tenant", "Tenant's \"1\"", "public"} {
		for _, among := range []int{1, 2} {
			t.Run(fmt.Sprint(name, among), func(t *testing.T) {
				dsn := server.Database(t)
				if name == "public" {
					migrated(t, dsn)
				} else {
					inSchemas(t, dsn, name)
				}
				inSchemas(t, dsn, "other")
				path := "SET search_path = other"
				db := open(t, dsn+"&search_path="+url.PathEscape(pgx.Identifier{name}.Sanitize()))
				db.SetMaxOpenConns(1)
				listening := make(chan string, 1)
				l := postgres.New(db, postgres.WithListener(func(ctx context.Context, channel string, begun func(), notify func(string)) error {
					select {
					case listening <- channel:
					default:
					}
					return listenTo(dsn)(ctx, channel, begun, notify)
				}))
				c, taken := claim("k", long), claim("k", long)
				c.MaxHolders, taken.MaxHolders = among, among
				g := mustAcquire(t, l, c)

				exec(t, db, path)
				held, err := l.Renew(t.Context(), c)
				require.NoError(t, err)
				require.True(t, held)
				driver.Await(t.Context(), l, driver.OpRenew, []driver.Claim{c}, driver.After{}, func(_ int, a driver.Answer, err error) {
					require.NoError(t, err)
					require.True(t, a.Held)
				})
				require.NoError(t, l.InTx(t.Context(), under(c, g.Fence), func(*sql.Tx) error { return nil }))
				_, err = l.TryAcquire(t.Context(), claim("new", long))
				requireKind(t, driver.KindSettings, err)
				shared := claim("new", long)
				shared.MaxHolders = 2
				_, err = l.TryAcquire(t.Context(), shared)
				requireKind(t, driver.KindSettings, err)
				woken := make(chan struct{}, 100)
				stop := l.Subscribe("k", "", func(time.Duration) { woken <- struct{}{} })
				<-woken
				channel := <-listening
				require.LessOrEqual(t, len(channel), 63)
				released, err := l.Release(t.Context(), c, driver.After{})
				require.NoError(t, err)
				require.True(t, released)
				stop()
				exec(t, db, "CREATE TEMPORARY TABLE onerun_leases ()")
				_, err = l.TryAcquire(t.Context(), claim("new", long))
				requireKind(t, driver.KindSettings, err)
				exec(t, db, "DROP TABLE pg_temp.onerun_leases")
				exec(t, db, "RESET search_path")
				mustAcquire(t, l, taken)
			})
		}
	}
}

// The name with the schema and the name alone are one table, so they share the channel and keys.
func nameWithItsSchemaIsTheSameTable(t *testing.T, dsn string) {
	inSchemas(t, dsn, "jobs")
	for _, table := range []string{"jobs.onerun_leases", "onerun_leases"} {
		var other atomic.Int64
		l := postgres.New(open(t, dsn+"&search_path=jobs"), postgres.WithTable(table))
		waiting := postgres.New(open(t, dsn+"&search_path=jobs"), postgres.WithListener(listenTo(dsn)))
		c := claim("k", long)
		mustAcquire(t, l, c)
		stop := waiting.Subscribe("k", "", func(time.Duration) { other.Add(1) })
		require.Eventually(t, func() bool { return other.Load() > 0 }, 20*time.Second, 5*time.Millisecond)
		busy, err := waiting.TryAcquire(t.Context(), claim("k", long))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, busy.State)
		before := other.Load()
		_, err = l.Release(t.Context(), c, driver.After{})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return other.Load() > before }, 20*time.Second, 5*time.Millisecond)
		stop()
	}
}

// Migrate sends no DDL if the table and its index exist: it would wait for locks.
func migrateChangesNothingThatExists(t *testing.T, dsn string) {
	l, db := migrated(t, dsn)
	exec(t, db, `CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'DDL'; END $$`)
	exec(t, db, `CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION refuse()`)
	require.NoError(t, l.Migrate(t.Context()))
	require.NoError(t, postgres.New(db, postgres.WithTable("public.onerun_leases")).Migrate(t.Context()))
	require.ErrorContains(t, postgres.New(db, postgres.WithTable("other")).Migrate(t.Context()), "DDL")
}
