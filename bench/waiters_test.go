package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	// waitersTTL is the TTL of what waiters claim.
	waitersTTL = 4 * time.Second
	// holderTTL is that of the lease for which they wait: so long that its renewals do not come
	// into the count.
	holderTTL = 10 * time.Minute
	// drainLimit ends the drain of waiters that get their turn too slowly.
	drainLimit = 10 * time.Second
)

// BenchmarkWaiters has callers of one process wait for one key that another process holds, and
// then have it one after the other. It reports what they cost while they wait, beside the caller's
// own goroutine, and how long it takes until all have had their turn. It is one measurement,
// however large b.N is.
func BenchmarkWaiters(b *testing.B) {
	server := redistest.Start(b)
	counts, settle := []int{1, 10, 100, 1_000, 10_000}, 2*time.Second
	window := waitersTTL
	if testing.Short() {
		counts, settle, window = []int{1, 10}, 100*time.Millisecond, 200*time.Millisecond
	}
	for _, waiters := range counts {
		for _, i := range impls {
			switch {
			case i.name == "raw" && waiters > 1:
				continue // a poll each, whatever their number
			case !i.ours() && (waiters == 10 || waiters == 1_000) && !testing.Short():
				continue // to be done in minutes
			}
			b.Run(fmt.Sprintf("impl=%s/waiters=%d", i.name, waiters), func(b *testing.B) {
				benchmarkWaiters(b, server, i, waiters, settle, window)
			})
		}
	}
	b.Run("impl=fenced-floor/waiters=1", func(b *testing.B) { floorWaiter(b, server, settle, window) })
}

func benchmarkWaiters(b *testing.B, server *redistest.Server, i impl, waiters int, settle, window time.Duration) {
	holder, err := i.open(setup{addr: server.Addr(), ttl: holderTTL})
	require.NoError(b, err)
	defer holder.close()
	l, err := i.open(setup{addr: server.Addr(), ttl: waitersTTL})
	require.NoError(b, err)
	defer l.close()
	warm(b, l, min(waiters, 64), keys())
	key := keys()(0)
	held, err := takeFor(holder, key)
	require.NoError(b, err)

	before := readUsage()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var turns atomic.Int64
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			for ctx.Err() == nil { // a locker that has had enough is asked again
				if pair(ctx, l, key, nothing) == nil {
					turns.Add(1)
					return
				}
			}
		})
	}
	time.Sleep(settle) // until all of them wait: they have asked once, and have subscribed
	count := counted(b, i.sends, []*redistest.Server{server})
	time.Sleep(window) // in which commands are counted
	commands := float64(count())
	require.Zero(b, turns.Load(), "pairs while another had the key")
	after := readUsage()

	start := time.Now()
	require.NoError(b, holder.give(b.Context(), key, held))
	limit := time.AfterFunc(drainLimit, cancel)
	all.Wait()
	limit.Stop()
	drained := time.Since(start)

	n := float64(waiters)
	b.ReportMetric(commands/window.Seconds(), "cmds/s")
	b.ReportMetric(commands*float64(waitersTTL/2)/float64(window)/n, "cmds/half-ttl/waiter")
	if waiters >= manyEnough {
		b.ReportMetric(float64(after.goroutines-before.goroutines)/n-1, "goroutines/waiter")
		b.ReportMetric((after.heap-before.heap)/n, "heap-B/waiter")
		b.ReportMetric((after.stacks-before.stacks)/n, "stack-B/waiter")
	}
	b.ReportMetric(float64(drained.Milliseconds()), "drain-ms")
	b.ReportMetric(float64(turns.Load())/n, "drained")
	b.ReportMetric(0, "ns/op") // says nothing here, and is left out
}

// floorPing is how often a floor's waiter asks whether its subscription is alive: as often as ours.
const floorPing = 3 * time.Second

// floorWaiter is the least for a waiter: a subscription that is checked now and then, as its
// connection may be dead, and a claim in each half of a TTL, as a message may be lost.
func floorWaiter(b *testing.B, server *redistest.Server, settle, window time.Duration) {
	l := lonelyFloor{onGoRedis{goRedis(setup{addr: server.Addr()})}, rand.Text()}
	holder := lonelyFloor{l.onGoRedis, rand.Text()}
	defer l.close()
	key := keys()(0)
	_, err := holder.take(b.Context(), key)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	subscription := l.rdb.Subscribe(ctx, key)
	defer subscription.Close()
	_, err = subscription.Receive(ctx)
	require.NoError(b, err)
	all.Go(func() {
		claims, pings := time.NewTicker(waitersTTL/2), time.NewTicker(floorPing)
		defer claims.Stop()
		defer pings.Stop()
		for {
			select {
			case <-claims.C:
				_, _ = l.take(ctx, key) // it is busy
			case <-pings.C:
				_ = subscription.Ping(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	time.Sleep(settle)
	require.NoError(b, l.rdb.PExpire(b.Context(), key, settle+2*window).Err())
	count := counted(b, nil, []*redistest.Server{server})
	time.Sleep(window)
	commands := float64(count())
	b.ReportMetric(commands*float64(waitersTTL/2)/float64(window), "cmds/half-ttl/waiter")
	b.ReportMetric(0, "ns/op")
}

// manyEnough is how many there have to be before what the process uses says something about each:
// under it, what clients and the garbage collector do by the way is more.
const manyEnough = 100

// A usage is what the process uses.
type usage struct {
	goroutines   int
	heap, stacks float64 // bytes
}

// readUsage looks after what is garbage has gone. Of goroutines it takes the fewest of a few
// looks, so that one which is on an errand is not taken for one that stays.
func readUsage() usage {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	u := usage{goroutines: runtime.NumGoroutine(), heap: float64(stats.HeapAlloc), stacks: float64(stats.StackInuse)}
	for range 20 {
		time.Sleep(5 * time.Millisecond) // between looks
		u.goroutines = min(u.goroutines, runtime.NumGoroutine())
	}
	return u
}
