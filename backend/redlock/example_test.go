package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func Example() {
	var servers []*miniredis.Miniredis // they stand for real ones, on machines of their own
	var nodes []guard.Locker
	for range 5 {
		server, err := miniredis.Run()
		if err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		servers = append(servers, server)
		// a dial that is refused is not repeated: the other nodes answer meanwhile
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
		defer func() { _ = rdb.Close() }()
		nodes = append(nodes, single.New(rdb))
	}

	g, err := guard.New(redlock.New(nodes), guard.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	servers[0].Close() // a minority may be away
	servers[1].Close()
	err = g.Do(ctx, "report:2026-11-21", func(ctx context.Context) error {
		fmt.Println("building the report, with a fence:", guard.Fence(ctx) > 0)
		again := g.Do(context.Background(), "report:2026-11-21", func(context.Context) error { return nil })
		fmt.Println("another one is kept out:", errors.Is(again, guard.ErrBusy))
		return nil
	})
	fmt.Println(err)

	servers[2].Close() // a majority may not
	err = g.Do(ctx, "report:2026-11-22", func(context.Context) error { return nil })
	var failed *guard.StoreError
	fmt.Println(errors.As(err, &failed) && failed.Kind == driver.KindQuorum)
	// Output:
	// building the report, with a fence: true
	// another one is kept out: true
	// <nil>
	// true
}

// One of three nodes is down. No call fails, so nobody would know of it without the hook.
func ExampleWithHook() {
	var nodes []guard.Locker
	for range 3 {
		server, err := miniredis.Run() // stands for a real one
		if err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
		defer func() { _ = rdb.Close() }()
		nodes = append(nodes, single.New(rdb))
		if len(nodes) == 3 {
			server.Close()
		}
	}
	failed := make(chan string, 100)
	hook := guard.Hook{Call: func(_ context.Context, e guard.CallEvent) {
		if e.Err != nil {
			failed <- e.Node
		}
	}}
	g, err := guard.New(redlock.New(nodes, redlock.WithHook(hook)))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()
	fmt.Println(g.Do(ctx, "report", func(context.Context) error { return nil }))
	fmt.Println("a node has failed:", <-failed != "")
	// Output:
	// <nil>
	// a node has failed: true
}
