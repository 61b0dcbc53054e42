// Cron is a service in several replicas, each with the same schedule. Each tick runs once, in one
// of them.
//
//	go run ./examples/redis                 a Redis, if you have none
//	go run ./examples/cron -name web-1      in a second terminal
//	go run ./examples/cron -name web-2      in a third
//
// Each tick is printed in one of the two terminals. Stop one, or kill it: the other runs all ticks.
// Start both with -redis 127.0.0.1:1, and the jobs wait for the store: no tick runs twice because
// the store is away.
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
	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	name := flag.String("name", "web", "the name of this replica")
	spec := flag.String("spec", "@every 2s", "when the report is built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, *name, *spec)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

// run runs the schedule until the context ends.
func run(ctx context.Context, addr, name, spec string) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close() // last: the Guard still needs it
	g, err := guard.New(single.New(rdb), guard.WithNamespace("reports"), guard.WithLabel(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(context.Background())) }()

	c := cron.New()
	jobs, err := guardcron.New(g, c)
	if err != nil {
		return err
	}
	_, err = jobs.AddFunc("report", spec, func(ctx context.Context) error {
		// The tick is the instant that the schedule names, the same in all replicas.
		tick, _ := guardcron.Tick(ctx)
		fmt.Printf("%s builds the report of %s\n", name, tick.UTC().Format(time.DateTime))
		return nil
	})
	if err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done() // no further tick
	return jobs.Close(context.Background())
}
