package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// join opens a locker that is closed when the benchmark ends.
func (i impl) join(t testing.TB, server *redistest.Server) locker {
	t.Helper()
	l, err := i.open(setup{addr: server.Addr(), ttl: ttl})
	require.NoError(t, err)
	t.Cleanup(l.close)
	return l
}

// pair takes the key, calls held and gives it back.
func pair(ctx context.Context, l locker, key string, held func()) error {
	lease, err := l.take(ctx, key)
	if err != nil {
		return err
	}
	held()
	return l.give(ctx, key, lease)
}

func nothing() {}

// settling is longer than the first fences of a counter are ahead of the server's clock: 131 ms,
// see counter.lua. Such fences cost more. Counters outlive all leases, so those of a server that
// has been in use for some time are long past that.
const settling = 150 * time.Millisecond

// makeCounters makes the fence counters of backend/single, all but a few, and lets them settle.
func makeCounters(b *testing.B, rdb *redis.Client) {
	b.Helper()
	l := single.New(rdb)
	claims := make([]driver.Claim, 8*1024) // for 1,024 counters
	for i := range claims {
		claims[i] = driver.Claim{Key: fmt.Sprint("counters:", i), ID: rand.Text(), TTL: ttl}
	}
	for _, op := range []driver.Op{driver.OpAcquire, driver.OpRelease} {
		driver.Await(b.Context(), l, op, claims, driver.After{}, func(_ int, a driver.Answer, err error) {
			if err != nil || a.State != driver.Granted && !a.Held {
				b.Error("a counter was not made: ", a, err)
			}
		})
	}
	time.Sleep(settling)
}

// uncontendedLimit ends a run of a locker that stalls again and again.
const uncontendedLimit = time.Minute

// run does b.N pairs by so many callers, each with a key of its own, and reports the commands that
// they came to on the servers. Two of the allocations of each pair are for the key, which is made
// anew as it is in a program.
func run(b *testing.B, callers int, l locker, sends []string, servers ...*redistest.Server) {
	b.Helper()
	key := keys()
	warm(b, l, callers, key)
	time.Sleep(settling)
	var begun, done, last atomic.Int64
	all, stop := untilStalled(&begun, uncontendedLimit)
	defer stop()
	count := counted(b, sends, servers)
	var ended sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	start, before := time.Now(), cpu()
	for c := range callers {
		ended.Go(func() {
			ctx, cancel := context.WithCancel(all)
			defer cancel()
			n, at := int64(0), start
			for begun.Add(1) <= int64(b.N) {
				if err := pair(ctx, l, key(c), nothing); err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					break
				}
				n, at = n+1, time.Now()
			}
			done.Add(n)
			raise(&last, int64(at.Sub(start)))
		})
	}
	ended.Wait()
	b.StopTimer()
	worked := cpu() - before
	if !reportPairs(b, int(done.Load()), time.Duration(last.Load()), count()) {
		return
	}
	b.ReportMetric(microseconds(worked)/float64(done.Load()), "client-µs/pair")
	var at time.Duration
	for _, s := range servers {
		at += busy(b, s.Client(b), sends)
	}
	b.ReportMetric(microseconds(at)/float64(done.Load()), "server-µs/pair")
}

// cpu returns for how long this process has been at work, on all processors.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// raise sets v to n if that is higher.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); old < n && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// reportPairs gives the time of the pairs that were done, until the last of them was done. They
// are fewer than b.N if somebody stalled. If there were none it returns false, and there is no
// time.
func reportPairs(b *testing.B, done int, took time.Duration, commands int64) bool {
	b.Helper()
	b.ReportMetric(float64(done)/float64(b.N), "done")
	if done < b.N {
		b.Logf("%d of %d pairs were done", done, b.N)
		b.ReportMetric(float64(took)/float64(max(done, 1)), "ns/op")
	}
	if done == 0 {
		b.ReportMetric(0, "ns/op") // which leaves it out
		return false
	}
	b.ReportMetric(float64(commands)/float64(done), "cmds/pair")
	return true
}

// warm makes connections and lets the servers learn the scripts: a pair of each caller, all at
// once, on keys of their own.
func warm(b *testing.B, l locker, callers int, key func(n int) string) {
	b.Helper()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			held, err := takeFor(l, key(c))
			if err == nil {
				err = l.give(context.Background(), key(c), held)
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	runtime.GC() // what earlier benchmarks left is not collected at the cost of this one
}

// runs numbers the runs, as each has keys of its own: the one before closed its clients while
// releases were still on their way to the slower servers.
var runs atomic.Int64

func keys() func(n int) string {
	run := runs.Add(1)
	return func(n int) string { return fmt.Sprintf("bench:%d:%d", run, n) }
}
