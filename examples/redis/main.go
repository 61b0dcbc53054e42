// Redis is a small Redis in memory, for the other examples, if you have none:
//
//	go run ./examples/redis
//
// It is alicebob/miniredis, a server for tests. Stop it with Ctrl-C, and all leases are gone.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:6379", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, *addr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

// serve serves until the context ends.
func serve(ctx context.Context, addr string) error {
	const step = 10 * time.Millisecond
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(addr); err != nil {
		return err
	}
	defer server.Close()
	fmt.Println("listening on", server.Addr())
	tick := time.NewTicker(step)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
			passed := time.Since(last)
			last = last.Add(passed)
			server.FastForward(passed) // by itself, time stands still in it
		case <-ctx.Done():
			return nil
		}
	}
}
