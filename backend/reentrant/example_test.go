package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
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

	g, err := guard.New(reentrant.New(rdb), guard.WithLabel("worker 1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	// Two steps of one import, perhaps in two processes, hold the tenant's data together.
	owner := guard.WithOwner("import 7 of {tenant}")
	first, err := g.Acquire(ctx, "{tenant}:data", owner)
	fmt.Println("first step:", err)
	second, err := g.Acquire(ctx, "{tenant}:data", owner)
	fmt.Println("second step:", err)

	clean := func(context.Context) error { fmt.Println("cleaning"); return nil }
	var busy *guard.BusyError
	if err := g.Do(ctx, "{tenant}:data", clean); errors.As(err, &busy) {
		fmt.Println("clean-up: busy, held by", busy.Label)
	}
	_ = first.Release(ctx)
	fmt.Println("clean-up after the first step:", errors.Is(g.Do(ctx, "{tenant}:data", clean), guard.ErrBusy))
	_ = second.Release(ctx)
	fmt.Println("clean-up after both:", g.Do(ctx, "{tenant}:data", clean))
	// Output:
	// first step: <nil>
	// second step: <nil>
	// clean-up: busy, held by worker 1
	// clean-up after the first step: true
	// cleaning
	// clean-up after both: <nil>
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
	store := reentrant.New(rdb, reentrant.WithClientSetup(func(own *redis.Client) { own.AddHook(&c) }))
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

func ExampleWithReadWrite() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	// In Java: redisson.getReadWriteLock("config").readLock() and .writeLock()
	g, err := guard.New(reentrant.New(rdb, reentrant.WithReadWrite()), guard.WithLabel("worker 1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = g.Close(ctx) }()

	load := func(context.Context) error { fmt.Println("loading"); return nil }
	write := func(context.Context) error { fmt.Println("writing"); return nil }
	reader, err := g.Acquire(ctx, "config", guard.WithShared())
	fmt.Println("a reader:", err)
	fmt.Println("another one:", g.Do(ctx, "config", load, guard.WithShared()))
	var busy *guard.BusyError
	if err := g.Do(ctx, "config", write); errors.As(err, &busy) {
		fmt.Println("a writer: busy, held by", busy.Label)
	}
	_ = reader.Release(ctx)
	fmt.Println("a writer after them:", g.Do(ctx, "config", write))
	// Output:
	// a reader: <nil>
	// loading
	// another one: <nil>
	// a writer: busy, held by worker 1
	// writing
	// a writer after them: <nil>
}

// Behind the one address is a Cluster, which the client cannot see, and Java subscribes as on a
// Cluster.
func ExampleWithPublish() {
	rdb := redis.NewClient(&redis.Options{Addr: "redis-proxy:6379"})
	defer func() { _ = rdb.Close() }()
	g, err := guard.New(reentrant.New(rdb, reentrant.WithPublish(reentrant.PublishSharded)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close(context.Background()) }()
}
