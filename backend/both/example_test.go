package both_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// A fleet moves from single to reentrant in two deploys, so that processes of neighbouring stages
// exclude each other. Here a process of each stage runs in one program.
func Example() {
	server, err := miniredis.Run() // stands for a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	ctx := context.Background()
	process := func(l guard.Locker) *guard.Guard {
		g, err := guard.New(l)
		if err != nil {
			panic(err)
		}
		return g
	}
	before := process(single.New(rdb))
	during := process(both.New(single.New(rdb), reentrant.New(rdb))) // the first deploy
	after := process(reentrant.New(rdb))                             // the second one
	for _, g := range []*guard.Guard{before, during, after} {
		defer func() { _ = g.Close(ctx) }()
	}

	_ = during.Do(ctx, "report", func(ctx context.Context) error {
		nothing := func(context.Context) error { return nil }
		fmt.Println("kept out before:", errors.Is(before.Do(ctx, "report", nothing), guard.ErrBusy))
		fmt.Println("kept out after:", errors.Is(after.Do(ctx, "report", nothing), guard.ErrBusy))
		return nil
	})
	// Output:
	// kept out before: true
	// kept out after: true
}
