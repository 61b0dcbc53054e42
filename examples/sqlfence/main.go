// Sqlfence takes one item out of a stock in SQLite, PostgreSQL or MySQL, under a lease. The
// database keeps the fence of the lease beside the data, so it refuses a process that has lost its
// lease without noticing.
//
//	go build -o sqlfence . && ./sqlfence -redis 127.0.0.1:6379
//
// The program reads the stock, and takes the item when you press Enter. To see a refusal, pause it
// with Ctrl-Z instead, and run ./sqlfence in another terminal. It gets the key after two seconds,
// and takes an item. Then let the first one go on (fg, Enter): its write is refused.
//
// With -db postgres:///shop, the stock is in PostgreSQL, and with -db 'root@tcp(127.0.0.1:3306)/shop'
// in MySQL. What matters is two statements: in stock.go, and for MySQL in mysql.go.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

func main() {
	db := flag.String("db", "stock.db", "a file of SQLite, a URL of PostgreSQL, or a data source name of MySQL")
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	item := flag.String("item", "spring", "spring or autumn")
	ttl := flag.Duration("ttl", 2*time.Second, "how long the key stays taken after its holder has died")
	flag.Parse()
	err := run(context.Background(), *db, *addr, *item, *ttl)
	switch {
	case errors.Is(err, errStale):
		fmt.Println("refused: a newer holder has come")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "sqlfence:", err)
		os.Exit(2)
	}
}

// run takes one item of the stock.
func run(ctx context.Context, dsn, addr, item string, ttl time.Duration) (err error) {
	stock, err := openStock(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stock.Close()) }()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	g, err := guard.New(single.New(rdb), guard.WithTTL(ttl), guard.WithNamespace("sqlfence"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()

	return g.Do(ctx, "stock:"+item, func(ctx context.Context) error {
		fence := guard.Fence(ctx)
		remaining, err := stock.read(ctx, item, fence)
		if err != nil {
			return err
		}
		fmt.Printf("%d are left; press Enter to take one\n", remaining)
		// A process that is paused here loses its lease.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')

		// In your code, pass ctx: it has ended if the process noticed the loss. Here, the write is
		// one that had left before: nothing can call it back, and only the fence refuses it.
		if err := stock.write(context.WithoutCancel(ctx), item, remaining-1, fence); err != nil {
			return err
		}
		fmt.Printf("taken, %d are left\n", remaining-1)
		return nil
	}, guard.WithWait(time.Minute))
}
