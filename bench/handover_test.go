package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	// handOffLimit ends a benchmark of a locker that takes long, or whose waiter sleeps on when
	// it should wake. Such a hand-off is not in the percentiles. It lowers "done", which is the
	// share of the hand-offs that were completed.
	handOffLimit = 10 * time.Second
	// settled is how long a key is held while the other waits. It is a few dozen round trips. In
	// that time, the waiter has been refused, has subscribed, and has asked again.
	settled = 3 * time.Millisecond
)

// BenchmarkHandOff has two clients, which stand for two processes, hand off a key to each other.
// It measures the time from one client's release until the other's call for the key returns. It
// also reports that time in round trips: pings by the same client in the same run.
func BenchmarkHandOff(b *testing.B) {
	server := redistest.Start(b)
	for _, i := range impls {
		b.Run("impl="+i.name+"/clients=2", func(b *testing.B) {
			from, to := i.join(b, server), i.join(b, server)
			warm(b, from, 1, keys())
			warm(b, to, 1, keys())
			ctx, cancel := context.WithTimeout(context.Background(), handOffLimit)
			defer cancel()
			trip := roundTrip(b, from)
			key := keys()(0)
			held, err := takeFor(from, key)
			require.NoError(b, err)
			took := make([]time.Duration, 0, b.N)
			for len(took) < b.N && err == nil {
				var d time.Duration
				if held, d, err = handOff(ctx, from, to, key, held); err == nil {
					took = append(took, d)
				}
				from, to = to, from
			}
			b.StopTimer()
			if err == nil {
				err = from.give(ctx, key, held) // for which a Guard's Close would wait
			}
			if err != nil && ctx.Err() == nil {
				b.Fatal(err)
			}
			reportHandOffs(b, took, trip)
		})
	}
	b.Run("impl=floor/clients=2", func(b *testing.B) {
		took, trip := handOffFloor(b, server.Addr())
		b.StopTimer()
		reportHandOffs(b, took, trip)
	})
}

// handOff releases a lease of from that to waits for. It returns the new lease of to.
func handOff(ctx context.Context, from, to locker, key string, held lease) (lease, time.Duration, error) {
	type grant struct {
		lease lease
		at    time.Time
		err   error
	}
	grants := make(chan grant, 1)
	go func() {
		l, err := to.take(ctx, key)
		grants <- grant{l, time.Now(), err}
	}()
	time.Sleep(settled)
	released := time.Now()
	gave := from.give(ctx, key, held)
	g := <-grants
	if g.err == nil {
		g.err = gave
	}
	return g.lease, g.at.Sub(released), g.err
}

// roundTrip is the median of bare round trips of the locker's client.
func roundTrip(b *testing.B, l locker) time.Duration {
	b.Helper()
	trips := make([]time.Duration, 1000)
	for n := range trips {
		start := time.Now()
		require.NoError(b, l.ping(context.Background()))
		trips[n] = time.Since(start)
	}
	p50, _ := percentiles(trips)
	return p50
}

func reportHandOffs(b *testing.B, took []time.Duration, trip time.Duration) {
	b.Helper()
	b.ReportMetric(float64(len(took))/float64(b.N), "done")
	if len(took) < b.N {
		b.Logf("%d of %d hand-offs were done in %v", len(took), b.N, handOffLimit)
	}
	if len(took) == 0 {
		b.ReportMetric(0, "ns/op") // which leaves it out
		return
	}
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	p50, p99 := percentiles(took)
	b.ReportMetric(float64(sum)/float64(len(took)), "ns/op")
	b.ReportMetric(microseconds(trip), "trip-µs")
	b.ReportMetric(microseconds(p50), "p50-µs")
	b.ReportMetric(microseconds(p99), "p99-µs")
	b.ReportMetric(float64(p50)/float64(trip), "p50-trips")
	b.ReportMetric(float64(p99)/float64(trip), "p99-trips")
}
