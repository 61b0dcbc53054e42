package single_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func Example() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	g, err := guard.New(single.New(rdb), guard.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	for range 2 {
		err := g.Do(ctx, "report:2026-11-21", func(context.Context) error {
			fmt.Println("building the report")
			return nil
		}, guard.WithOnce(24*time.Hour))
		fmt.Println(err)
	}
	// Output:
	// building the report
	// <nil>
	// guard: "report:2026-11-21" is done
}

// Close what uses a thing before the thing itself.
func ExampleLocker_Close() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locker := single.New(rdb)
	g, err := guard.New(locker, guard.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(g.Do(ctx, "report", func(context.Context) error { return nil }))
	fmt.Println(g.Close(ctx), locker.Close(), rdb.Close())
	// Output:
	// <nil>
	// <nil> <nil> <nil>
}

// A counter is a hook of go-redis that counts what is sent. One that traces is added in the same
// way.
type counter struct{ sent atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			c.sent.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func ExampleWithClientSetup() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	var c counter
	rdb.AddHook(&c)
	store := single.New(rdb, single.WithClientSetup(func(own *redis.Client) { own.AddHook(&c) }))
	g, err := guard.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()
	for range 100 { // so often that it is given a connection of its own
		if err := g.Do(ctx, "report", func(context.Context) error { return nil }); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(c.sent.Load(), "scripts")
	// Output: 200 scripts
}

// Two replicas must acknowledge each lease within 50 ms. This server has none, so nothing runs.
func ExampleWithReplicas() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	g, err := guard.New(single.New(rdb, single.WithReplicas(2, 50*time.Millisecond)))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()
	err = g.Do(ctx, "report", func(context.Context) error {
		fmt.Println("building the report")
		return nil
	})
	var failed *guard.StoreError
	if errors.As(err, &failed) {
		fmt.Println(failed.Kind)
	}
	// Output: noreplicas
}

// The longest TTL of all leases on this server is 30 s. After a restart, the server grants nothing
// until it has been up for longer than that.
func ExampleWithMinUptime() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer func() { _ = rdb.Close() }()

	const longest = 30 * time.Second
	g, err := guard.New(single.New(rdb, single.WithMinUptime(longest)), guard.WithTTL(longest))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()
	err = g.Do(ctx, "report", func(context.Context) error {
		fmt.Println("building the report")
		return nil
	})
	var failed *guard.StoreError
	if errors.As(err, &failed) && failed.Kind == driver.KindRestarted {
		fmt.Println("the server has restarted and may have forgotten a lease")
	}
}

// A proxy that routes each command by its first key stands before several servers.
func ExampleWithoutBatching() {
	server, err := miniredis.Run() // stands for the proxy
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	g, err := guard.New(single.New(rdb, single.WithoutBatching()))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()
	err = g.Do(ctx, "report", func(context.Context) error {
		fmt.Println("building the report")
		return nil
	})
	fmt.Println(err)
	// Output:
	// building the report
	// <nil>
}

// Processes that still use redsync, redislock or gocron's locker on the name of the key exclude
// this one, and are excluded by it.
func ExampleWithPlainKeys() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	g, err := guard.New(single.New(rdb, single.WithPlainKeys(func(key string) string { return "locks:" + key })))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	rdb.SetNX(ctx, "locks:report", "a lock of the other library", time.Minute)
	err = g.Do(ctx, "report", func(context.Context) error { return nil })
	fmt.Println("busy:", errors.Is(err, guard.ErrBusy))
	rdb.Del(ctx, "locks:report")
	fmt.Println(g.Do(ctx, "report", func(ctx context.Context) error {
		fmt.Println("its lock is taken:", rdb.Exists(ctx, "locks:report").Val() == 1)
		return nil
	}))
	// Output:
	// busy: true
	// its lock is taken: true
	// <nil>
}
