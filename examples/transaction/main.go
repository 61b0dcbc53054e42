// Transaction moves money between two accounts in PostgreSQL, where the leases are as well. The
// fence is checked in the transaction itself, so what a process has done after its lease has ended
// is never committed.
//
//	go run ./examples/transaction -db postgres:///bank -move alice,bob,10    in two terminals
//
// The program reads both accounts, and moves the money when you press Enter. The other one waits
// for its turn. Pause the first with Ctrl-Z instead of pressing Enter: after its TTL of two
// seconds, the other one gets the accounts, and moves. Then let the first go on (fg, Enter): its
// transaction is rolled back. It read what is no longer true.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
)

const schema = `CREATE TABLE IF NOT EXISTS accounts (owner TEXT PRIMARY KEY, balance BIGINT NOT NULL);
INSERT INTO accounts VALUES ('alice', 100), ('bob', 100) ON CONFLICT DO NOTHING`

func main() {
	dsn := flag.String("db", "postgres:///bank", "the database")
	move := flag.String("move", "alice,bob,10", "from whom, to whom, and how much")
	flag.Parse()
	from, rest, _ := strings.Cut(*move, ",")
	to, amount, _ := strings.Cut(rest, ",")
	cents, err := strconv.Atoi(amount)
	if err == nil {
		err = run(context.Background(), *dsn, from, to, cents)
	}
	switch {
	case errors.Is(err, postgres.ErrStale):
		fmt.Println("rolled back: another process had the accounts in the meantime")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "transaction:", err)
		os.Exit(2)
	}
}

// run moves an amount from one account to another.
func run(ctx context.Context, dsn, from, to string, amount int) (err error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	locker := postgres.New(db)
	if err := locker.Migrate(ctx); err != nil { // creates the table of the leases, once
		return err
	}
	g, err := guard.New(locker, guard.WithNamespace("bank"), guard.WithTTL(2*time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()

	// Both accounts or none. Two processes that move money in opposite directions do not block each
	// other for ever, whatever the order of the keys.
	keys := []string{"account:" + from, "account:" + to}
	return g.DoAll(ctx, keys, func(ctx context.Context) error {
		balance, err := read(ctx, db, from)
		if err != nil {
			return err
		}
		fmt.Printf("%s has %d; press Enter to move %d to %s\n", from, balance, amount, to)
		// A process that is paused here loses its leases.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')

		// In your code, pass ctx: it has ended if the process has noticed the loss. Here, nothing
		// but the check of the fence in InTx stops the transaction.
		lease, _ := guard.FromContext(ctx)
		return locker.InTx(context.WithoutCancel(ctx), lease, func(tx *sql.Tx) error {
			return write(ctx, tx, map[string]int{from: -amount, to: +amount})
		})
	}, guard.WithWait(time.Minute))
}

func read(ctx context.Context, db *sql.DB, owner string) (balance int, err error) {
	err = db.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE owner = $1`, owner).Scan(&balance)
	return balance, err
}

func write(ctx context.Context, tx *sql.Tx, changes map[string]int) error {
	for owner, change := range changes {
		if _, err := tx.ExecContext(context.WithoutCancel(ctx), `UPDATE accounts SET balance = balance + $2 WHERE owner = $1`, owner, change); err != nil {
			return err
		}
	}
	fmt.Println("moved")
	return nil
}
