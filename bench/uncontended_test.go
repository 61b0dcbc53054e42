package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// callers are how many take keys at a time, in one process.
var callers = []int{1, 64, 512}

// BenchmarkUncontended has callers with a key of their own each.
func BenchmarkUncontended(b *testing.B) {
	server := redistest.Start(b)
	for _, g := range callers {
		for _, i := range impls {
			b.Run(fmt.Sprintf("impl=%s/g=%d", i.name, g), func(b *testing.B) {
				run(b, g, i.join(b, server), i.sends, server)
			})
		}
		if g == 1 {
			b.Run("impl=fenced-floor/g=1", func(b *testing.B) {
				l := lonelyFloor{onGoRedis{goRedis(setup{addr: server.Addr()})}, rand.Text()}
				b.Cleanup(l.close)
				run(b, 1, l, nil, server)
			})
			continue
		}
		for _, i := range floors {
			b.Run(fmt.Sprintf("impl=%s/g=%d", i.name, g), func(b *testing.B) {
				run(b, g, i.join(b, server), i.sends, server)
			})
		}
	}
	b.Run("impl=raw/g=512/pipeline=256", func(b *testing.B) {
		rdb := goRedis(setup{addr: server.Addr()})
		defer rdb.Close()
		pipelines(b, rdb, 512, 256)
	})
}

// pipelines does b.N pairs as one who writes batches by hand does: so many callers have their keys
// in pipelines of that size, one of SET NX and then one of EVALSHA, as many pipelines at a time as
// it takes for all of them.
func pipelines(b *testing.B, rdb *redis.Client, callers, size int) {
	token := rand.Text()
	batch := func(own []string) error {
		ctx := context.Background()
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range own {
				p.SetNX(ctx, key, token, ttl)
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range own {
				deleteOwn.EvalSha(ctx, p, []string{key}, token)
			}
			return nil
		})
		return err
	}
	if err := deleteOwn.Load(context.Background(), rdb).Err(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers / size {
		key, own := keys(), make([]string, size)
		for i := range own {
			own[i] = key(i)
		}
		all.Go(func() {
			for begin := next.Add(int64(size)) - int64(size); begin < int64(b.N); begin = next.Add(int64(size)) - int64(size) {
				if err := batch(own[:min(size, b.N-int(begin))]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
