package bench

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// A keyed does something for a key that nobody else does for it at the same time.
type keyed func(ctx context.Context, db *sql.DB, key string) error

// A migrator is a backend on a table.
type migrator interface {
	guard.Locker
	Migrate(ctx context.Context) error
}

// A sqlImpl is one way to do it.
type sqlImpl struct {
	name string
	do   keyed
}

// BenchmarkPostgres has callers with a key of their own each. Each pair of onerun commits twice;
// advisory locks write nop, have no lease and no fence, and need a session or a transaction
// for as long as they are held. A unique job of River is inserted, and not worked: that compares
// with onerun-once, which leaves a marker.
func BenchmarkPostgres(b *testing.B) {
	for _, durable := range []string{"off", "on"} {
		server := postgrestest.Start(b, "fsync="+durable)
		db, err := sql.Open("pgx", server.DSN())
		require.NoError(b, err)
		b.Cleanup(func() { _ = db.Close() })
		onTable(b, durable, db, postgres.New(db), []sqlImpl{
			{"session-advisory", sessionAdvisory},
			{"transaction-advisory", transactionAdvisory},
			{"river-unique", riverUnique(b, server.DSN())},
		})
	}
}

// onTable runs the benchmarks of a backend on a table and of its peers, by 1 caller and by 16.
func onTable(b *testing.B, durable string, db *sql.DB, locker migrator, peers []sqlImpl) {
	b.Helper()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	require.NoError(b, locker.Migrate(b.Context()))
	ours := []sqlImpl{
		{"onerun", guardedBySQL(b, locker)},
		{"onerun-once", guardedBySQL(b, locker, guard.WithOnce(time.Hour))},
	}
	for _, i := range append(ours, peers...) {
		for _, g := range []int{1, 16} {
			b.Run(fmt.Sprintf("impl=%s/fsync=%s/g=%d", i.name, durable, g), func(b *testing.B) {
				keyedBy(b, g, db, i.do)
			})
		}
	}
}

// uniqueKey makes keys that were not used before.
var uniqueKey atomic.Int64

// keyedBy calls do b.N times, by so many callers.
func keyedBy(b *testing.B, callers int, db *sql.DB, do keyed) {
	b.Helper()
	b.ReportAllocs()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := do(b.Context(), db, "key:"+strconv.FormatInt(uniqueKey.Add(1), 10)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func guardedBySQL(b *testing.B, locker guard.Locker, opts ...guard.Option) keyed {
	b.Helper()
	g, err := guard.New(locker)
	require.NoError(b, err)
	b.Cleanup(func() { _ = g.Close(context.Background()) })
	nop := func(context.Context) error { return nil }
	return func(ctx context.Context, _ *sql.DB, key string) error { return g.Do(ctx, key, nop, opts...) }
}

func hashOf(key string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return int64(h.Sum64())
}

func sessionAdvisory(ctx context.Context, db *sql.DB, key string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var locked bool
	if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, hashOf(key)).Scan(&locked); err != nil || !locked {
		return fmt.Errorf("locked: %v, %w", locked, err)
	}
	return conn.QueryRowContext(ctx, `SELECT pg_advisory_unlock($1)`, hashOf(key)).Scan(&locked)
}

func transactionAdvisory(ctx context.Context, db *sql.DB, key string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var locked bool
	if err := tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1)`, hashOf(key)).Scan(&locked); err != nil || !locked {
		return fmt.Errorf("locked: %v, %w", locked, err)
	}
	return tx.Commit()
}

type uniqueJob struct {
	Key string `json:"key"`
}

func (uniqueJob) Kind() string { return "unique" }

func riverUnique(b *testing.B, dsn string) keyed {
	b.Helper()
	pool, err := pgxpool.New(b.Context(), dsn+"&pool_max_conns=16")
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	require.NoError(b, err)
	_, err = migrator.Migrate(b.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(b, err)
	client, err := river.NewClient(driver, &river.Config{})
	require.NoError(b, err)
	opts := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	return func(ctx context.Context, _ *sql.DB, key string) error {
		_, err := client.Insert(ctx, uniqueJob{key}, opts)
		return err
	}
}
