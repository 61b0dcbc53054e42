package load_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A holding is how many leases are held for how long.
type holding struct {
	leases int
	ttl    time.Duration
	span   time.Duration
}

func holdingOf() holding {
	if full() {
		return holding{leases: 100_000, ttl: guard.DefaultTTL, span: time.Minute}
	}
	return holding{leases: 3_000, ttl: 12 * time.Second, span: 5 * time.Second}
}

func TestLoad_keepsEveryLeaseAlive(t *testing.T) {
	onEach(t, []string{"single"}, func(t *testing.T, backend string) {
		h := holdingOf()
		p := newPlace(t, backend, 1, holders, guard.WithTTL(h.ttl))
		h.run(t, p)
		p.requireBase()
	})
}

// run is a function of its own, so that nothing of it is in memory afterwards.
func (h holding) run(t *testing.T, p *place) {
	leases := make([]*guard.Lease, h.leases)
	empty := p.usage()
	watch := p.watch()
	defer func() { t.Log(watch.stop()) }() // before anything is asked about goroutines
	start := p.meter()
	inParallel(h.leases, func(n int) {
		lease, err := p.guards[0].Acquire(context.Background(), "held:"+strconv.Itoa(n), guard.WithWait(soon))
		if err != nil {
			t.Errorf("lease %d: %v", n, err)
			return
		}
		leases[n] = lease
	})
	require.False(t, t.Failed())
	t.Logf("taken in %v: %s", time.Since(start.at).Round(time.Millisecond), p.since(start))

	p.server.ResetStats(t)
	start = p.meter()
	renewals := int64(0)
	for end := start.at.Add(h.span); time.Now().Before(end) || renewals < int64(h.leases); {
		require.Less(t, time.Since(start.at), h.span+soon, "each of them is kept alive by renewals")
		time.Sleep(h.ttl / 10) // between two looks
		requireAllValid(t, leases)
		calls := p.server.Calls(t)
		renewals = calls["pexpire"] + calls["pexpireat"]
	}
	spent := p.since(start)
	thirds := float64(time.Since(start.at)) / float64(h.ttl/3)
	t.Logf("%d held: %s; %d renewals in %.1f thirds of the TTL", h.leases, spent, renewals, thirds)
	require.LessOrEqual(t, float64(renewals), float64(h.leases)*(4.0/3*thirds+1), "not by more than one in a quarter of the TTL")

	held := p.usage()
	t.Logf("held:   %v", held)
	t.Logf("a lease: %d bytes of heap", (held.heap-empty.heap)/h.leases)
	require.Less(t, held.goroutines-empty.goroutines, 100, "their number has nothing to do with that of leases, but for batches under way")

	start = p.meter()
	inParallel(h.leases, func(n int) {
		if err := leases[n].Release(context.Background()); err != nil {
			t.Errorf("lease %d: %v", n, err)
		}
	})
	t.Logf("given back in %v: %s", time.Since(start.at).Round(time.Millisecond), p.since(start))
}

func requireAllValid(t *testing.T, leases []*guard.Lease) {
	t.Helper()
	for n, lease := range leases {
		if !lease.Valid() || lease.Context().Err() != nil {
			require.FailNow(t, "a lease was lost", "lease %d: %v", n, context.Cause(lease.Context()))
		}
	}
}

// holders is how many goroutines acquire and release leases.
const holders = 64

// inParallel calls f for each number under n.
func inParallel(n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range holders {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}
