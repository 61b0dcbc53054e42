package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/guard"
)

func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:secret@/app") // by github.com/go-sql-driver/mysql
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	locker := mysql.New(db)
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

// A stale write cannot commit, because the lease and the stock are on one server.
func ExampleLocker_InTx() {
	ctx := context.Background()
	var db *sql.DB // is opened elsewhere
	locker := mysql.New(db)
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
	if errors.Is(err, mysql.ErrStale) {
		fmt.Println("a newer holder has come, and nothing was written")
	}
}

// CheckFence is for a transaction that begins elsewhere.
func ExampleLocker_CheckFence() {
	var locker *mysql.Locker
	sell := func(ctx context.Context, tx *sql.Tx) error {
		lease, _ := guard.FromContext(ctx)
		if err := locker.CheckFence(ctx, tx, lease); err != nil {
			return err // and roll back
		}
		_, err := tx.ExecContext(ctx, `UPDATE stock SET remaining = remaining - 1 WHERE item = 'spring'`)
		return err
	}
	_ = sell
}

// Two services share a server. Each has leases of its own, in its database.
func ExampleWithTable() {
	var db *sql.DB // is opened elsewhere
	locker := mysql.New(db, mysql.WithTable("billing.leases"))
	g, err := guard.New(locker)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = g.Close(context.Background())
}
