package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// contestLimit ends a contest in which somebody starves or everybody sleeps. What was done until
// then is reported.
const contestLimit = 20 * time.Second

// BenchmarkContended has 64 callers that want one key and hold it for no time: in one process, and
// in four with a client each. In place of processes there are lockers with clients of their own;
// BenchmarkProcesses has real ones.
func BenchmarkContended(b *testing.B) {
	server := redistest.Start(b)
	const g = 64
	for _, clients := range []int{1, 4} {
		for _, i := range impls {
			b.Run(fmt.Sprintf("impl=%s/g=%d/clients=%d", i.name, g, clients), func(b *testing.B) {
				lockers := make([]locker, clients)
				for n := range lockers {
					lockers[n] = i.join(b, server)
					warm(b, lockers[n], g/clients, keys())
				}
				c := newContest(lockers, g/clients, keys()(0), b.N)
				count := counted(b, i.sends, []*redistest.Server{server})
				b.ReportAllocs()
				b.ResetTimer()
				start := time.Now()
				c.run()
				b.StopTimer()
				c.report(b, start, count())
			})
		}
	}
}

// A contest is about one key. The key's holder writes to it, and nobody else.
type contest struct {
	lockers []locker
	key     string
	pairs   int // to be done

	inside   atomic.Bool
	doubles  atomic.Int64 // how often there were two holders
	failures atomic.Int64 // how often a locker had enough of waiting
	begun    atomic.Int64
	shares   [][]int         // pairs of each locker's callers
	released time.Time       // when the last holder began to release
	gaps     []time.Duration // from release to acquire
}

func newContest(lockers []locker, callers int, key string, pairs int) *contest {
	shares := make([][]int, len(lockers))
	for n := range shares {
		shares[n] = make([]int, callers)
	}
	return &contest{lockers: lockers, key: key, pairs: pairs, shares: shares, gaps: make([]time.Duration, 0, pairs)}
}

// hold is what the holder does. What it writes is seen by the next, as both pass inside.
func (c *contest) hold() {
	if !c.inside.CompareAndSwap(false, true) {
		c.doubles.Add(1)
		return
	}
	now := time.Now()
	if !c.released.IsZero() && len(c.gaps) < cap(c.gaps) {
		c.gaps = append(c.gaps, now.Sub(c.released))
	}
	c.released = time.Now()
	c.inside.Store(false)
}

// run returns when all pairs are done, nobody gets on, or the limit is reached.
func (c *contest) run() {
	all, stop := untilStalled(&c.begun, contestLimit)
	defer stop()
	var ended sync.WaitGroup
	for n, l := range c.lockers {
		for caller := range c.shares[n] {
			ended.Go(func() {
				ctx, cancel := context.WithCancel(all)
				defer cancel()
				for c.begun.Add(1) <= int64(c.pairs) && c.pair(ctx, l) {
					c.shares[n][caller]++
				}
			})
		}
	}
	ended.Wait()
}

// pair does one pair, however often the locker has to be asked. It returns false if the contest is
// over.
func (c *contest) pair(ctx context.Context, l locker) bool {
	for ctx.Err() == nil {
		if pair(ctx, l, c.key, c.hold) == nil {
			return true
		}
		if ctx.Err() == nil {
			c.failures.Add(1)
		}
	}
	return false
}

// report also says how fair it was, and how long it took from a release to the next acquire.
func (c *contest) report(b *testing.B, start time.Time, commands int64) {
	b.Helper()
	require.Zero(b, c.doubles.Load(), "how often two held the key")
	done, minShare, served := fairness(c.shares)
	if !reportPairs(b, done, c.released.Sub(start), commands) {
		return
	}
	b.ReportMetric(float64(c.failures.Load())/float64(done), "failed/pair")
	if len(c.shares) > 1 {
		b.ReportMetric(minShare, "min-share")
	}
	b.ReportMetric(served, "served")
	p50, p99 := percentiles(c.gaps)
	b.ReportMetric(microseconds(p50), "p50-µs")
	b.ReportMetric(microseconds(p99), "p99-µs")
}

// fairness returns how many pairs were done, what the process that got least had of its fair
// share, and what part of all callers got any.
func fairness(shares [][]int) (done int, minShare, served float64) {
	least, callers := -1, 0
	for _, own := range shares {
		sum := 0
		for _, n := range own {
			sum += n
			callers++
			if n > 0 {
				served++
			}
		}
		done += sum
		if least < 0 || sum < least {
			least = sum
		}
	}
	return done, float64(least*len(shares)) / float64(max(done, 1)), served / float64(callers)
}

// percentiles returns the median and what 99 of 100 are not above.
func percentiles(spans []time.Duration) (p50, p99 time.Duration) {
	if len(spans) == 0 {
		return 0, 0
	}
	slices.Sort(spans)
	return spans[len(spans)/2], spans[(len(spans)*99-1)/100]
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
