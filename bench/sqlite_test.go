package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
)

// BenchmarkSQLite has callers with a key of their own each, as BenchmarkPostgres does. What a user
// would write is a row that is inserted and deleted. It has no lease and no fence, so a process
// that is killed keeps it. Both commit twice. Commits wait for the disk if fsync is on.
func BenchmarkSQLite(b *testing.B) {
	for _, durable := range []string{"off", "on"} {
		path := filepath.Join(b.TempDir(), "leases.db")
		db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous("+
			map[string]string{"off": "OFF", "on": "FULL"}[durable]+")")
		require.NoError(b, err)
		b.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		_, err = db.ExecContext(b.Context(), `CREATE TABLE locks (key TEXT PRIMARY KEY)`)
		require.NoError(b, err)
		for _, i := range []struct {
			name string
			do   keyed
		}{
			{"onerun", guardedBySQLite(b, db)},
			{"onerun-once", guardedBySQLite(b, db, guard.WithOnce(time.Hour))},
			{"insert-delete", insertDelete},
		} {
			for _, g := range []int{1, 16} {
				b.Run(fmt.Sprintf("impl=%s/fsync=%s/g=%d", i.name, durable, g), func(b *testing.B) {
					keyedBy(b, g, db, i.do)
				})
			}
		}
	}
}

func guardedBySQLite(b *testing.B, db *sql.DB, opts ...guard.Option) keyed {
	b.Helper()
	locker := sqlite.New(db)
	require.NoError(b, locker.Migrate(b.Context()))
	g, err := guard.New(locker)
	require.NoError(b, err)
	b.Cleanup(func() { _ = g.Close(context.Background()) })
	nop := func(context.Context) error { return nil }
	return func(ctx context.Context, _ *sql.DB, key string) error { return g.Do(ctx, key, nop, opts...) }
}

func insertDelete(ctx context.Context, db *sql.DB, key string) error {
	for _, statement := range []string{`INSERT INTO locks VALUES (?)`, `DELETE FROM locks WHERE key = ?`} {
		tx, err := db.BeginTx(ctx, nil) // BEGIN IMMEDIATE, by the parameter of the driver
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, statement, key); err != nil {
			_ = tx.Rollback()
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
