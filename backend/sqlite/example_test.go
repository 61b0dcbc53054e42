package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
)

func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "app.db?_pragma=busy_timeout(5000)") // by modernc.org/sqlite
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(8)
	locker := sqlite.New(db)
	if err := locker.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	g, err := guard.New(locker)
	if err != nil {
		fmt.Println(err)
		return
	}
	report := func(context.Context) error {
		fmt.Println("making the report")
		return nil
	}
	fmt.Println(g.Do(ctx, "report:2026-11-21", report, guard.WithOnce(24*time.Hour)))
	fmt.Println(g.Close(ctx))
}

// A stale write cannot commit, because the lease and the stock are in one file.
func ExampleLocker_InTx() {
	ctx := context.Background()
	var db *sql.DB // is opened elsewhere
	locker := sqlite.New(db)
	g, err := guard.New(locker)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = g.Do(ctx, "stock:spring", func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		return locker.InTx(ctx, lease, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = remaining - 1 WHERE item = 'spring'`)
			return err
		})
	})
	if errors.Is(err, sqlite.ErrStale) {
		fmt.Println("a newer holder has come, and nothing was written")
	}
}
