package bench

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

// BenchmarkMySQL has callers with a key of their own each, as BenchmarkPostgres does. Each pair of
// onerun commits twice. GET_LOCK writes nothing, has no lease and no fence, and needs a session for
// as long as it is held.
func BenchmarkMySQL(b *testing.B) {
	for _, durable := range []string{"off", "on"} {
		server := mysqltest.Start(b, "innodb-flush-method="+map[string]string{"off": "nosync", "on": "fsync"}[durable])
		db, err := sql.Open("mysql", server.Database(b))
		require.NoError(b, err)
		b.Cleanup(func() { _ = db.Close() })
		onTable(b, durable, db, mysql.New(db), []sqlImpl{{"get-lock", getLock}})
	}
}

func getLock(ctx context.Context, db *sql.DB, key string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var locked bool
	if err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, 0)`, key).Scan(&locked); err != nil || !locked {
		return fmt.Errorf("locked: %v, %w", locked, err)
	}
	return conn.QueryRowContext(ctx, `SELECT RELEASE_LOCK(?)`, key).Scan(&locked)
}
