package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// BenchmarkRedLockWaiters has several Guards over five servers that want one key again and again,
// each for a millisecond. It measures how many scripts a run costs, and for how long no Guard
// holds the key between two runs.
func BenchmarkRedLockWaiters(b *testing.B) {
	counts, span := []int{1, 5, 8, 12, 20}, 5*time.Second
	if testing.Short() {
		counts, span = []int{3}, 300*time.Millisecond
	}
	servers := redistest.StartN(b, 5)
	for _, guards := range counts {
		b.Run(fmt.Sprintf("impl=onerun/guards=%d", guards), func(b *testing.B) {
			var all []*guard.Guard
			for range guards {
				var nodes []guard.Locker
				for _, c := range connect(b, servers) {
					nodes = append(nodes, single.New(c))
				}
				g, err := guard.New(redlock.New(nodes), guard.WithTTL(30*time.Second), guard.WithWait(guard.Forever))
				require.NoError(b, err)
				require.NoError(b, g.Do(b.Context(), fmt.Sprint("own", len(all)), func(context.Context) error { return nil }))
				all = append(all, g)
			}
			trip := tripTime(b, all[0])
			count := counted(b, []string{"eval", "evalsha"}, servers)
			var mu sync.Mutex
			var last time.Time
			var gaps []time.Duration
			ran := make([]int, guards)
			ctx, cancel := context.WithTimeout(b.Context(), span)
			defer cancel()
			var done sync.WaitGroup
			for i, g := range all {
				done.Go(func() {
					for ctx.Err() == nil {
						_ = g.Do(ctx, "contended", func(context.Context) error {
							mu.Lock()
							if !last.IsZero() {
								gaps = append(gaps, time.Since(last))
							}
							ran[i]++
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							last = time.Now()
							mu.Unlock()
							return nil
						})
					}
				})
			}
			done.Wait()
			scripts := count()
			for _, g := range all {
				require.NoError(b, g.Close(context.Background()))
			}
			runs := 0
			for _, n := range ran {
				runs += n
			}
			require.Positive(b, runs)
			slices.Sort(gaps)
			at := func(share float64) time.Duration { return gaps[int(share*float64(len(gaps)-1))] }
			b.ReportMetric(float64(span.Nanoseconds())/float64(runs), "ns/op")
			b.ReportMetric(float64(scripts)/float64(runs), "scripts/run")
			b.ReportMetric(float64(at(0.5))/float64(trip), "gap-p50-trips")
			b.ReportMetric(float64(at(0.99).Microseconds())/1000, "gap-p99-ms")
			b.ReportMetric(float64(at(1).Microseconds())/1000, "gap-max-ms")
			b.ReportMetric(float64(slices.Min(ran)*guards)/float64(runs), "min-share")
		})
	}
}

// tripTime returns the median time of an acquire that nobody contends for.
func tripTime(b *testing.B, g *guard.Guard) time.Duration {
	var all []time.Duration
	for range 101 {
		begun := time.Now()
		lease, err := g.Acquire(b.Context(), "alone")
		all = append(all, time.Since(begun))
		require.NoError(b, err)
		require.NoError(b, lease.Release(b.Context()))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
