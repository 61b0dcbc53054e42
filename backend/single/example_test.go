package single_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
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
