package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
)

func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://localhost/app") // by github.com/jackc/pgx/v5/stdlib
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	locker := postgres.New(db)
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

// A stale write cannot commit, because the lease and the stock are in one database.
func ExampleLocker_InTx() {
	ctx := context.Background()
	var db *sql.DB // is opened elsewhere
	locker := postgres.New(db)
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
	if errors.Is(err, postgres.ErrStale) {
		fmt.Println("a newer holder has come, and nothing was written")
	}
}

// CheckFence is for a transaction that begins elsewhere.
func ExampleLocker_CheckFence() {
	var locker *postgres.Locker
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

// A release wakes waiters in other processes, on a connection of its own.
func ExampleWithListener() {
	listen := func(ctx context.Context, channel string, begun func(), notify func(payload string)) error {
		conn, err := pgx.Connect(ctx, "postgres://localhost/app") // of github.com/jackc/pgx/v5
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
	var db *sql.DB // is opened elsewhere
	g, err := guard.New(postgres.New(db, postgres.WithListener(listen)), guard.WithWait(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = g.Close(context.Background())
}

// pgx has the calls of that package which ExampleWithListener makes: this module requires no
// driver. The tests in internal/verify/postgres wait by the same lines, with pgx itself.
var pgx struct {
	Connect func(ctx context.Context, dsn string) (pgxConn, error)
}

type pgxConn interface {
	Exec(ctx context.Context, sql string, args ...any) (tag string, err error)
	WaitForNotification(ctx context.Context) (*pgxNotification, error)
	Close(ctx context.Context) error
}

type pgxNotification struct{ Payload string }

// Two services share a database. Each has leases of its own, in its schema.
func ExampleWithTable() {
	var db *sql.DB // is opened elsewhere
	locker := postgres.New(db, postgres.WithTable("billing.leases"))
	g, err := guard.New(locker)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = g.Close(context.Background())
}
