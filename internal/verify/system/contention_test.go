package system_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is a process that contends for a key when this is set to the stage, the address
// of the resource's server, and how many callers it has.
const contenderEnv = "ONERUN_TEST_CONTENDER"

const (
	contenders = 4
	runsOfEach = 25 // of each process at least
)

// contend has callers run under one key between two lines that come in, and reports how many runs
// there were.
func contend(task string) {
	parts := strings.Fields(task)
	l, end := open(parts[0])
	defer end()
	g, err := guard.New(l, guard.WithTTL(5*time.Second))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	resource := redis.NewClient(&redis.Options{Addr: parts[1]})
	ctx := context.Background()
	if err := errors.Join(g.Do(ctx, "warm", nothing, guard.WithWait(time.Minute)), resource.Ping(ctx).Err()); err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()

	var runs atomic.Int64
	var all sync.WaitGroup
	callers, err := strconv.Atoi(parts[2])
	if err != nil {
		fmt.Println("error", err)
		return
	}
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	for range callers {
		all.Go(func() {
			for over.Err() == nil {
				err := g.Do(over, "k", func(ctx context.Context) error { return count(resource, guard.Fence(ctx)) }, guard.WithWait(guard.Forever))
				switch {
				case err == nil:
					runs.Add(1)
				case over.Err() == nil:
					fmt.Println("error", err)
					return
				}
			}
		})
	}
	lines.Scan()
	cancel()
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

// count adds one to the counter, in two steps, and to that of the process. It completes all steps,
// even if its caller's time is up.
func count(resource *redis.Client, fence uint64) error {
	ctx := context.Background()
	n, err := read.Run(ctx, resource, []string{"counter", "fence"}, fence).Int64()
	if err != nil {
		return err
	}
	return errors.Join(resource.Set(ctx, "counter", n+1, 0).Err(), resource.HIncrBy(ctx, "runs", strconv.Itoa(os.Getpid()), 1).Err())
}

func TestContention_ofProcessesStarvesNoneAndIsCheapAndExcludes(t *testing.T) {
	for _, backend := range []string{"single", "cluster"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			stage := newStage(t, backend)
			sum := haveProcessesContend(t, stage, 16)
			commands := float64(stage.calls(t)) / float64(sum)
			t.Logf("%.2f commands a run", commands)
			require.LessOrEqual(t, commands, 6.0)
		})
	}
}

// A caller that has had the key has left the queue when it comes again. So it does not know that
// it has had the key.
func TestContention_ofLoneCallersStarvesNone(t *testing.T) {
	t.Parallel()
	haveProcessesContend(t, newStage(t, "reentrant"), 1)
}

// haveProcessesContend has processes with so many callers each contend for a key until each has had
// it often, checks that they exclude one another, and returns how many runs there were.
func haveProcessesContend(t *testing.T, stage stage, callers int) (sum int) {
	t.Helper()
	resource := redistest.Start(t)
	task := fmt.Sprintf("%s=%s %s %d", contenderEnv, stage, resource.Addr(), callers)
	var all []*processtest.Child
	for range contenders {
		all = append(all, processtest.Self(t, task))
	}
	for _, w := range all {
		says(t, w, "ready")
	}
	stage.resetStats(t)
	for _, w := range all {
		w.Tell("go")
	}
	had := resource.Client(t)
	require.Eventually(t, func() bool {
		of, err := had.HVals(t.Context(), "runs").Result()
		return err == nil && len(of) == contenders && !slices.ContainsFunc(of, func(n string) bool {
			runs, err := strconv.Atoi(n)
			return err != nil || runs < runsOfEach
		})
	}, time.Minute, 10*time.Millisecond, "a process starves")
	for _, w := range all {
		w.Tell("stop")
	}
	var runs []int
	for _, w := range all {
		n, err := strconv.Atoi(says(t, w, "runs"))
		require.NoError(t, err)
		runs, sum = append(runs, n), sum+n
	}
	t.Logf("%d runs: %v", sum, runs)
	counter, err := resource.Client(t).Get(t.Context(), "counter").Int()
	require.NoError(t, err)
	require.GreaterOrEqual(t, counter, sum, "runs whose caller's time was up have counted, but not their caller")
	require.LessOrEqual(t, counter, sum+contenders*callers)
	return sum
}

// BenchmarkContended is 64 callers that want one key, on a real server: in one process, and as if
// in several, each with its own client.
func BenchmarkContended(b *testing.B) {
	server := redistest.Start(b)
	for _, backend := range []string{"single", "reentrant"} {
		stage := stage{backend, []*redistest.Server{server}}
		for _, clients := range []int{1, 4} {
			b.Run(fmt.Sprintf("backend=%s/clients=%d", backend, clients), func(b *testing.B) {
				var guards []*guard.Guard
				for range clients {
					guards = append(guards, stage.guard(b, guard.WithWait(guard.Forever)))
				}
				stage.resetStats(b)
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
				b.ReportMetric(float64(stage.calls(b))/float64(b.N), "commands/op")
				for _, g := range guards {
					require.NoError(b, g.Close(b.Context()))
				}
			})
		}
	}
}
