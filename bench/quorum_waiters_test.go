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

// heldFor is how long each run takes of those that take turns at a key.
const heldFor = time.Millisecond

// BenchmarkRedLockWaiters has several Guards over five servers that want one key again and again,
// each for a millisecond. It measures how many scripts a run costs, and for how long no Guard
// holds the key between two runs.
func BenchmarkRedLockWaiters(b *testing.B) {
	counts, span := []int{1, 5, 8, 12, 20}, 5*time.Second
	if testing.Short() {
		counts, span = []int{3}, 300*time.Millisecond
	}
	servers := redistest.StartN(b, 5)
	for _, n := range counts {
		b.Run(fmt.Sprintf("impl=onerun/guards=%d", n), func(b *testing.B) { contendForQuorum(b, servers, n, span) })
	}
	most := counts[len(counts)-1]
	b.Run(fmt.Sprintf("impl=fenced-floor/guards=%d", most), func(b *testing.B) { quorumTurns(b, servers, most, span) })
}

func contendForQuorum(b *testing.B, servers []*redistest.Server, guards int, span time.Duration) {
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
	var gaps gaps
	gaps.measureTrip(b, func() (release func() error, err error) {
		lease, err := all[0].Acquire(b.Context(), "alone")
		return func() error { return lease.Release(b.Context()) }, err
	})
	count := counted(b, []string{"eval", "evalsha"}, servers)
	var mu sync.Mutex
	ran := make([]int, guards)
	ctx, cancel := context.WithTimeout(b.Context(), span)
	defer cancel()
	var done sync.WaitGroup
	for i, g := range all {
		done.Go(func() {
			for ctx.Err() == nil {
				_ = g.Do(ctx, "contended", func(context.Context) error {
					mu.Lock()
					gaps.end()
					ran[i]++
					mu.Unlock()
					time.Sleep(heldFor)
					mu.Lock()
					gaps.begin()
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
	gaps.report(b, span, runs, scripts)
	b.ReportMetric(float64(slices.Min(ran)*guards)/float64(runs), "min-share")
}

// gaps are the times in which nobody holds a key between two runs.
type gaps struct {
	trip  time.Duration // of an acquire that nobody contends for
	begun time.Time
	all   []time.Duration
}

func (g *gaps) measureTrip(b *testing.B, acquire func() (release func() error, err error)) {
	var trips []time.Duration
	for range 101 {
		begun := time.Now()
		release, err := acquire()
		trips = append(trips, time.Since(begun))
		require.NoError(b, err)
		require.NoError(b, release())
	}
	g.trip, _ = percentiles(trips)
}

func (g *gaps) begin() { g.begun = time.Now() }

func (g *gaps) end() {
	if !g.begun.IsZero() {
		g.all = append(g.all, time.Since(g.begun))
	}
}

func (g *gaps) report(b *testing.B, span time.Duration, runs int, scripts int64) {
	require.NotEmpty(b, g.all)
	p50, p99 := percentiles(g.all)
	b.ReportMetric(float64(span.Nanoseconds())/float64(runs), "ns/op")
	b.ReportMetric(float64(scripts)/float64(runs), "scripts/run")
	b.ReportMetric(microseconds(g.trip), "trip-µs")
	b.ReportMetric(microseconds(p50), "gap-p50-µs")
	b.ReportMetric(float64(p50)/float64(g.trip), "gap-p50-trips")
	b.ReportMetric(float64(p99.Microseconds())/1000, "gap-p99-ms")
	b.ReportMetric(float64(slices.Max(g.all).Microseconds())/1000, "gap-max-ms")
}
