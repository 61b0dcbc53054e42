package bench

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A soloist is what one caller does again and again by an implementation.
type soloist struct {
	impl string
	do   func(n int) error
}

// inTurn has one caller that uses each implementation in turn, and reports the median time of
// each. A round trip to a server on the same machine may take 15 µs in one second and 100 µs in the
// next, as the two may run on one processor or on two. In turn, all implementations have the same
// share of each.
func inTurn(b *testing.B, all ...soloist) {
	rounds, warming := 3000, 300
	if testing.Short() {
		rounds, warming = 20, 2
	}
	took := make([][]time.Duration, len(all))
	for n := range warming + rounds {
		for i := range all {
			i = (i + n) % len(all) // none has always the same one before it
			start := time.Now()
			err := all[i].do(n)
			d := time.Since(start)
			require.NoError(b, err, all[i].impl)
			if n >= warming {
				took[i] = append(took[i], d)
			}
		}
	}
	for i, s := range all {
		slices.Sort(took[i])
		b.Run("impl="+s.impl+"/g=1", func(b *testing.B) {
			b.ReportMetric(float64(took[i][rounds/2]), "ns/op")
			b.ReportMetric(float64(took[i][rounds/10].Nanoseconds())/1000, "p10-µs")
			b.ReportMetric(float64(took[i][rounds*9/10].Nanoseconds())/1000, "p90-µs")
		})
	}
}

// pairsOf is a soloist that takes and gives a key.
func pairsOf(name string, l locker) soloist {
	key := keys()
	return soloist{name, func(n int) error { return pair(context.Background(), l, key(n%64), nothing) }}
}

// BenchmarkAlone is BenchmarkUncontended with one caller.
func BenchmarkAlone(b *testing.B) {
	server := redistest.Start(b)
	var all []soloist
	for _, i := range impls {
		all = append(all, pairsOf(i.name, i.join(b, server)))
	}
	floor := lonelyFloor{onGoRedis{goRedis(setup{addr: server.Addr()})}, rand.Text()}
	b.Cleanup(floor.close)
	inTurn(b, append(all, pairsOf("fenced-floor", floor))...)
}

// BenchmarkRedLockAlone is BenchmarkRedLock with one caller.
func BenchmarkRedLockAlone(b *testing.B) {
	servers := redistest.StartN(b, 5)
	inTurn(b,
		pairsOf("onerun", quorum(b, "onerun", connect(b, servers))),
		pairsOf("redsync", quorum(b, "redsync", connect(b, servers))),
		pairsOf("fenced-floor", openQuorumFloor(b, connect(b, servers))))
}

// BenchmarkHTTPGuardAlone is BenchmarkHTTPGuard with one caller.
func BenchmarkHTTPGuardAlone(b *testing.B) {
	httpInTurn(b, []httpImpl{{"raw", excludedByHand}, {"onerun", excluded}, {"fenced-floor", excludedByFloor}})
}

// BenchmarkHTTPEmptyAlone is BenchmarkHTTPEmpty with one caller.
func BenchmarkHTTPEmptyAlone(b *testing.B) { httpInTurn(b, httpImpls) }

func httpInTurn(b *testing.B, impls []httpImpl) {
	server := redistest.Start(b)
	makeCounters(b, server.Client(b))
	var all []soloist
	for _, i := range impls {
		rdb := server.Client(b)
		e, key := i.around(b, rdb, http.HandlerFunc(noContent.ServeHTTP), noContent), keys()
		var p page
		all = append(all, soloist{i.name, func(n int) error {
			p.ask(e.first, key(n))
			if p.status != noContent.status {
				b.Errorf("%s: answered with %d: %.200q", i.name, p.status, p.body)
			}
			return nil
		}})
	}
	inTurn(b, all...)
}
