package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// heldTTL is the TTL of leases that are held for long.
const heldTTL = 10 * time.Second

// BenchmarkHeld has one process hold keys. It reports what they cost more than one key, and what
// their renewal costs in one TTL. If an implementation leaves renewal to its users, a goroutine
// for each lease renews it at each third of the TTL, as users would. It is one measurement,
// however large b.N is.
func BenchmarkHeld(b *testing.B) {
	server := redistest.Start(b)
	counts, leaseTTL := []int{1, 100, 10_000, 100_000}, heldTTL
	if testing.Short() {
		counts, leaseTTL = []int{1, 100}, time.Second
	}
	for _, n := range counts {
		for _, i := range impls {
			switch {
			case i.name == "raw":
				continue // nobody renews by hand
			case !i.ours() && n != counts[min(2, len(counts)-1)]:
				// a goroutine each, and most of them a command for each renewal, whatever their
				// number
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/keys=%d", i.name, n), func(b *testing.B) {
				benchmarkHeld(b, server, i, n, leaseTTL)
			})
		}
	}
}

func benchmarkHeld(b *testing.B, server *redistest.Server, i impl, n int, leaseTTL time.Duration) {
	var c trips
	s := setup{addr: server.Addr(), ttl: leaseTTL}
	onGoRedis := i.name != "rueidislock"
	if onGoRedis {
		s.hook = &c
	}
	l, err := i.open(s)
	require.NoError(b, err)
	defer l.close()
	warm(b, l, 64, keys())
	h := &holding{l: l, ttl: leaseTTL, keys: make([]string, n), leases: make([]lease, n), over: make(chan struct{})}
	key := keys()
	for k := range h.keys {
		h.keys[k] = key(k)
	}
	first, err := takeFor(l, key(-1)) // what one lease starts for all is there before
	require.NoError(b, err)
	before := readUsage()
	err = h.takeAll(i.stalls)
	if i.stalls && errors.Is(err, context.Canceled) {
		b.Logf("cut off: an attempt stalled")
		return
	}
	require.NoError(b, err)
	after := readUsage()

	stats := server.Client(b)
	server.ResetStats(b)
	reads, writes := readsOf(b, stats), c.writes.Load()
	time.Sleep(leaseTTL) // in which renewals are counted
	calls := server.Calls(b)
	// each of them does one, in a script
	renewals := float64(calls["pexpire"] + calls["pexpireat"])
	readsTook, writesTook := readsOf(b, stats)-reads, c.writes.Load()-writes

	each := float64(n)
	b.ReportMetric(float64(after.goroutines-before.goroutines), "goroutines")
	if n >= manyEnough {
		b.ReportMetric((after.heap-before.heap)/each, "heap-B/key")
		b.ReportMetric((after.stacks-before.stacks)/each, "stack-B/key")
	}
	b.ReportMetric(renewals/(each+1), "renewals/ttl/key")
	if i.name != "rueidislock" { // it tells by a context, which this would have to keep for each
		b.ReportMetric(float64(h.ended())/each, "lost")
	}
	if renewals > 0 {
		b.ReportMetric(100*float64(readsTook)/renewals, "reads/100-renewals")
		if onGoRedis {
			b.ReportMetric(100*float64(writesTook)/renewals, "pipelines/100-renewals")
		}
	}
	b.ReportMetric(0, "ns/op") // says nothing here, and is left out
	h.giveAll()
	_ = l.give(b.Context(), key(-1), first)
}

// A holding is keys that one process holds.
type holding struct {
	l       locker
	ttl     time.Duration
	keys    []string
	leases  []lease
	over    chan struct{}
	renewed sync.WaitGroup
	lost    atomic.Int64
}

// each calls f for every key, by 64 callers.
func (h *holding) each(f func(k int) error) error {
	var next atomic.Int64
	var failed atomic.Value
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(h.keys)); k = next.Add(1) - 1 {
				if err := f(int(k)); err != nil {
					failed.Store(err)
					return
				}
			}
		})
	}
	all.Wait()
	err, _ := failed.Load().(error)
	return err
}

// takeLimit ends the taking of keys by a locker that stalls.
const takeLimit = 30 * time.Second

// takeAll takes with the context that costs nothing, as leases keep theirs, unless the locker is
// known to stall.
func (h *holding) takeAll(stalls bool) error {
	ctx := context.Background()
	if stalls {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(takeLimit, cancel).Stop()
	}
	return h.each(func(k int) (err error) {
		h.leases[k], err = h.l.take(ctx, h.keys[k])
		if e, ok := h.l.(extender); ok && err == nil {
			h.renewed.Go(func() { h.renew(e, h.leases[k]) })
		}
		return err
	})
}

// ended is how many leases are none any more.
func (h *holding) ended() (n int64) {
	for _, l := range h.leases {
		if l, ok := l.(*guard.Lease); ok && !l.Valid() {
			n++
		}
	}
	return n + h.lost.Load()
}

// renew is the loop that users write.
func (h *holding) renew(e extender, l lease) {
	ticker := time.NewTicker(h.ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if e.extend(context.Background(), l) != nil {
				h.lost.Add(1)
				return
			}
		case <-h.over:
			return
		}
	}
}

func (h *holding) giveAll() {
	close(h.over)
	h.renewed.Wait()
	_ = h.each(func(k int) error { return h.l.give(context.Background(), h.keys[k], h.leases[k]) })
}

// readsOf is how often the server has read from a connection: about once for each pipeline, and
// once more for each 16 KiB of it.
func readsOf(b *testing.B, rdb *redis.Client) int {
	b.Helper()
	info, err := rdb.InfoMap(b.Context(), "stats").Result()
	require.NoError(b, err)
	n, err := strconv.Atoi(info["Stats"]["total_reads_processed"])
	require.NoError(b, err)
	return n
}
