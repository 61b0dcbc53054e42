package single_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// compareAndDelete is the release that one writes by hand beside SET NX PX.
var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// BenchmarkPair sets a run under the guard beside SET NX PX and EVALSHA by hand on one client, one
// by one and in pipelines that one fills oneself. Each of g callers has a key of its own, which
// nobody else wants.
func BenchmarkPair(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	ctx := context.Background()
	require.NoError(b, compareAndDelete.Load(ctx, rdb).Err())
	for _, g := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("impl=raw/g=%d", g), func(b *testing.B) {
			together(b, rdb, g, func(key string) error { return pairByHand(ctx, rdb, key) })
		})
		b.Run(fmt.Sprintf("impl=onerun/g=%d", g), func(b *testing.B) {
			guarded, err := guard.New(single.New(rdb))
			require.NoError(b, err)
			together(b, rdb, g, func(key string) error { return guarded.Do(ctx, key, nothing) })
			require.NoError(b, guarded.Close(ctx))
		})
	}
	b.Run("impl=raw-pipelines-of-256/g=1", func(b *testing.B) { pipelinesByHand(ctx, b, rdb, 256) })
}

// together has g callers share b.N pairs, after some to warm up.
func together(b *testing.B, rdb *redis.Client, g int, pair func(key string) error) {
	var group sync.WaitGroup
	share := func(n int64) {
		var taken atomic.Int64
		for i := range g {
			group.Go(func() {
				key := fmt.Sprint("key:", i)
				for taken.Add(1) <= n {
					if err := pair(key); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	share(int64(10 * g))
	b.ReportAllocs()
	defer reportCPU(b, rdb)()
	b.ResetTimer()
	share(int64(b.N))
}

// reportCPU reports the processor time of this process and of the server, which tell more than the
// clock does on a machine that has other things to do.
func reportCPU(b *testing.B, rdb *redis.Client) (report func()) {
	client, server := cpu(b), serverCPU(b, rdb)
	return func() {
		b.ReportMetric(float64((cpu(b)-client).Nanoseconds())/float64(b.N), "client-ns/op")
		b.ReportMetric(float64((serverCPU(b, rdb)-server).Nanoseconds())/float64(b.N), "server-ns/op")
	}
}

func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func serverCPU(b *testing.B, rdb *redis.Client) (all time.Duration) {
	info, err := rdb.InfoMap(context.Background(), "cpu").Result()
	require.NoError(b, err)
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		require.NoError(b, err)
		all += time.Duration(seconds * float64(time.Second))
	}
	return all
}

func pairByHand(ctx context.Context, rdb redis.Cmdable, key string) error {
	if ok, err := rdb.SetNX(ctx, key, "token", time.Minute).Result(); err != nil || !ok {
		return fmt.Errorf("SET NX of %s: %t, %w", key, ok, err)
	}
	if n, err := compareAndDelete.Run(ctx, rdb, []string{key}, "token").Int(); err != nil || n != 1 {
		return fmt.Errorf("release of %s: %d, %w", key, n, err)
	}
	return nil
}

func pipelinesByHand(ctx context.Context, b *testing.B, rdb *redis.Client, size int) {
	keys := make([]string, size)
	for i := range keys {
		keys[i] = fmt.Sprint("key:", i)
	}
	b.ReportAllocs()
	defer reportCPU(b, rdb)()
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		for _, send := range []func(redis.Pipeliner, string){
			func(p redis.Pipeliner, key string) { p.SetNX(ctx, key, "token", time.Minute) },
			func(p redis.Pipeliner, key string) { compareAndDelete.EvalSha(ctx, p, []string{key}, "token") },
		} {
			pipe := rdb.Pipeline()
			for _, key := range keys {
				send(pipe, key)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkLocker(b *testing.B) {
	server := redistest.Start(b)
	guardtest.Benchmark(b, guardtest.Backend{
		New: func(t testing.TB) guard.Locker { return onEmpty(t, server) },
	})
}
