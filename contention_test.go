package onerun_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

// The test binary is a process that contends for a key when this is set to the backend and the addresses of the servers of the leases
// and of the resource.
const contenderEnv = "ONERUN_TEST_CONTENDER"

const (
	contenders    = 4
	callersOfEach = 16
	contention    = 3 * time.Second
)

// backendOf returns the named backend on a server.
func backendOf(name string, rdb redis.UniversalClient) guard.Locker {
	if name == "single" {
		return single.New(rdb)
	}
	return reentrant.New(rdb)
}

// contend has callers run under one key for some time, from when a line has come in, and says how many runs there were.
func contend(task string) {
	parts := strings.Fields(task)
	g, err := guard.New(backendOf(parts[0], redis.NewClient(&redis.Options{Addr: parts[1]})), guard.WithTTL(5*time.Second))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	resource := redis.NewClient(&redis.Options{Addr: parts[2]})
	ctx := context.Background()
	if err := errors.Join(g.Do(ctx, "warm", nothing, guard.WithWait(time.Minute)), resource.Ping(ctx).Err()); err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()

	var runs atomic.Int64
	var all sync.WaitGroup
	end, cancel := context.WithTimeout(ctx, contention)
	defer cancel()
	for range callersOfEach {
		all.Go(func() {
			for end.Err() == nil {
				err := g.Do(end, "k", func(ctx context.Context) error { return count(resource, guard.Fence(ctx)) }, guard.WithWait(guard.Forever))
				switch {
				case err == nil:
					runs.Add(1)
				case end.Err() == nil:
					fmt.Println("error", err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := g.Close(ctx); err != nil {
		fmt.Println("error", err)
	}
	fmt.Println("runs", runs.Load())
}

// read refuses a fence that is not larger than all before, and answers the counter.
var read = redis.NewScript(`
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[2]) or 0) then
  return redis.error_reply('fence ' .. ARGV[1] .. ' after ' .. redis.call('GET', KEYS[2]))
end
redis.call('SET', KEYS[2], ARGV[1])
return tonumber(redis.call('GET', KEYS[1]) or 0)`)

// count adds one to the counter, in two steps. It does so to its end, also where its caller's time is up.
func count(resource *redis.Client, fence uint64) error {
	ctx := context.Background()
	n, err := read.Run(ctx, resource, []string{"counter", "fence"}, fence).Int64()
	if err != nil {
		return err
	}
	return resource.Set(ctx, "counter", n+1, 0).Err()
}

func TestContention_ofProcessesIsFairAndCheapAndExcludes(t *testing.T) {
	for _, backend := range []string{"reentrant"} {
		t.Run(backend, func(t *testing.T) {
			servers := redistest.StartN(t, 2)
			task := fmt.Sprintf("%s=%s %s %s", contenderEnv, backend, servers[0].Addr(), servers[1].Addr())
			var all []*worker
			for range contenders {
				all = append(all, startProcess(t, task))
			}
			for _, w := range all {
				w.says("ready")
			}
			servers[0].ResetStats(t)
			for _, w := range all {
				_, err := w.stdin.Write([]byte("go\n"))
				require.NoError(t, err)
			}
			var runs []int
			sum := 0
			for _, w := range all {
				n, err := strconv.Atoi(w.says("runs"))
				require.NoError(t, err)
				runs, sum = append(runs, n), sum+n
			}
			counter, err := servers[1].Client(t).Get(t.Context(), "counter").Int()
			require.NoError(t, err)
			require.GreaterOrEqual(t, counter, sum, "runs whose caller's time was up have counted, but not their caller")
			require.LessOrEqual(t, counter, sum+contenders*callersOfEach)

			var commands int64
			for _, n := range servers[0].Calls(t) {
				commands += n
			}
			t.Logf("%d runs: %v; %.2f commands a run", sum, runs, float64(commands)/float64(sum))
			require.LessOrEqual(t, float64(commands)/float64(sum), 6.0)
			for _, n := range runs {
				require.GreaterOrEqual(t, n, sum/contenders/4, "a quarter of its fair share")
			}
		})
	}
}

// BenchmarkContended is 64 callers who want one key, on a real server: in one process, and as if in several, each with its own client.
func BenchmarkContended(b *testing.B) {
	server := redistest.Start(b)
	for _, backend := range []string{"single", "reentrant"} {
		for _, clients := range []int{1, 4} {
			b.Run(fmt.Sprintf("backend=%s/clients=%d", backend, clients), func(b *testing.B) {
				var guards []*guard.Guard
				for range clients {
					g, err := guard.New(backendOf(backend, server.Client(b)), guard.WithWait(guard.Forever))
					require.NoError(b, err)
					guards = append(guards, g)
				}
				server.ResetStats(b)
				b.ReportAllocs()
				var next atomic.Int64
				var all sync.WaitGroup
				for i := range 64 {
					all.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if err := guards[i%clients].Do(b.Context(), "key", nothing); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				var commands int64
				for _, n := range server.Calls(b) {
					commands += n
				}
				b.ReportMetric(float64(commands)/float64(b.N), "commands/op")
				for _, g := range guards {
					require.NoError(b, g.Close(b.Context()))
				}
			})
		}
	}
}
