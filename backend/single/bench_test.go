package single_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

// compareAndDelete is the release that one writes by hand beside SET NX PX.
var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// BenchmarkUncontended sets a run under the guard beside SET NX PX and EVALSHA by hand, on one client.
func BenchmarkUncontended(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	ctx := context.Background()
	b.Run("impl=raw/g=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ok, err := rdb.SetNX(ctx, "raw", "token", time.Minute).Result(); err != nil || !ok {
				b.Fatal(ok, err)
			}
			if n, err := compareAndDelete.Run(ctx, rdb, []string{"raw"}, "token").Int(); err != nil || n != 1 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("impl=onerun/g=1", func(b *testing.B) {
		g, err := guard.New(single.New(rdb))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := g.Do(ctx, "key", nothing); err != nil {
				b.Fatal(err)
			}
		}
		if err := g.Close(ctx); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkLocker(b *testing.B) {
	server := redistest.Start(b)
	guardtest.Benchmark(b, guardtest.Store{
		New: func(t testing.TB) guard.Locker { return onEmpty(t, server) },
	})
}
