package bench

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed-1795987d/onerun/backend/sqlite"
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
		_, err = db.ExecContext(b.Context(), `CREATE TABLE locks (key TEXT PRIMARY KEY)`)
		require.NoError(b, err)
		onTable(b, durable, db, sqlite.New(db), []sqlImpl{{"insert-delete", insertDelete}})
	}
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
