// Leader is a service of which one replica consumes a feed, for as long as it lives. The others
// stand by.
//
//	go run ./examples/redis                  a Redis, if you have none
//	go run ./examples/leader -name web-1     in a second terminal
//	go run ./examples/leader -name web-2     in a third
//
// Stop the leader with Ctrl-C: the other one leads at once. Kill it, or pause it with Ctrl-Z: the
// other one leads when the lease has ended, after five seconds at most. Let the paused one go on by
// fg: it finds that its term is over, and stands by.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	name := flag.String("name", "web", "the name of this replica")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, *name)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

// run takes part in the election until the context ends.
func run(ctx context.Context, addr, name string) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close() // last: the Guard still needs it
	g, err := guard.New(single.New(rdb), guard.WithNamespace("feed"), guard.WithTTL(5*time.Second), guard.WithLabel(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(context.Background())) }()
	fmt.Println(name, "stands by")
	return g.Lead(ctx, "consumer", func(ctx context.Context) error { return consume(ctx, name) })
}

// consume leads until the context ends: with the lease, or because the process is to stop. It must
// return soon then, as nobody else leads before it has.
func consume(ctx context.Context, name string) error {
	term := guard.Fence(ctx) // grows with each term: let the data refuse a smaller one
	fmt.Printf("%s leads, term %d\n", name, term)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Printf("%s consumes\n", name)
		case <-ctx.Done():
			fmt.Printf("%s leads no more: %v\n", name, context.Cause(ctx))
			return ctx.Err()
		}
	}
}
