package scale_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A holding is how many leases processes hold on one server. A process is a Guard and a client.
type holding struct {
	processes, leases int // of all processes
	ttl               time.Duration

	renewals    float64 // in a second
	lost        int
	server, own float64       // percent of a core
	perRenewal  time.Duration // of the server's processor
	bytes       float64       // of the server's memory, for a lease
}

func TestHeld_costsRenewals(t *testing.T) {
	all := []*holding{{processes: 1, leases: 500, ttl: 1500 * time.Millisecond}, {processes: 50, leases: 500, ttl: 1500 * time.Millisecond}}
	if full() {
		const short, long = 10 * time.Second, 30 * time.Second
		all = []*holding{
			{processes: 1, leases: 1_000, ttl: short},
			{processes: 1, leases: 10_000, ttl: short},
			{processes: 1, leases: 100_000, ttl: short},
			{processes: 1, leases: 300_000, ttl: short},
			{processes: 1, leases: 1_000_000, ttl: long},
			{processes: 100, leases: 100_000, ttl: short},
			{processes: 1000, leases: 1_000, ttl: short},
			{processes: 1000, leases: 10_000, ttl: short},
			{processes: 1000, leases: 100_000, ttl: short},
		}
	}
	var table strings.Builder
	fmt.Fprintln(&table, "| leases | processes | TTL | renewals/s | server CPU | µs a renewal | the processes' CPU | server memory a lease | lost |\n"+
		"|---|---|---|---|---|---|---|---|---|")
	for _, h := range all {
		t.Run(fmt.Sprintf("%d of %d, %v", h.leases, h.processes, h.ttl), h.measure)
		if h.renewals == 0 {
			continue // it was left out, or has failed
		}
		fmt.Fprintf(&table, "| %s | %s | %v | %s | %.1f %% | %.1f | %.0f %% | %.0f B | %d |\n", thousands(h.leases), thousands(h.processes),
			h.ttl, thousands(int(h.renewals)), h.server, float64(h.perRenewal)/1e3, h.own, h.bytes, h.lost)
	}
	show(t, "held", table.String())
	show(t, "carried", carried(all))
}

// measure takes the leases and measures while they are renewed twice.
func (h *holding) measure(t *testing.T) {
	server := redistest.Start(t)
	m := startMeter(t, server)
	memory := func() float64 { return info(t, m.admins[0], "memory", "Memory", "used_memory") }
	guards := make([]*guard.Guard, h.processes)
	for i := range guards {
		var err error
		guards[i], err = guard.New(single.New(server.Client(t)), guard.WithTTL(h.ttl))
		require.NoError(t, err)
	}
	inParallel(32, h.processes, func(i int) { // so that connections are not counted
		if err := guards[i].Do(context.Background(), fmt.Sprint("warm", i), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
	before := memory()
	leases := make([]*guard.Lease, h.leases)
	inParallel(256, h.leases, func(i int) {
		var err error
		leases[i], err = guards[i%h.processes].Acquire(context.Background(), strconv.Itoa(i))
		if err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	})
	require.False(t, t.Failed())
	h.bytes = (memory() - before) / float64(h.leases)
	time.Sleep(h.ttl / 3) // until the first of them are renewed
	runtime.GC()

	server.ResetStats(t)
	m.reset()
	time.Sleep(2 * h.ttl / 3) // in which each is renewed twice
	used := m.since()
	calls := server.Calls(t)
	renewals := calls["pexpire"] + calls["pexpireat"]
	require.Positive(t, renewals)
	h.renewals = float64(renewals) / used.span.Seconds()
	h.server, h.own = used.share(used.servers), used.share(used.own)
	h.perRenewal = used.servers / time.Duration(renewals)
	for _, lease := range leases {
		if !lease.Valid() {
			h.lost++
		}
	}
	inParallel(256, h.leases, func(i int) { _ = leases[i].Release(context.Background()) })
	for _, g := range guards {
		require.NoError(t, g.Close(context.Background()))
	}
}

// ceiling is the share of a core that a server should have left for claims and for bad moments.
const ceiling = 50.0

// carried extrapolates: the renewals of so many leases in a second, times what one has taken of the
// server at the nearest number of leases for each process, as measured.
func carried(measured []*holding) string {
	var b strings.Builder
	shapes := []int{1, 1000}
	if !full() {
		shapes = []int{1, 50}
	}
	fmt.Fprintf(&b, "| leases | TTL | renewals/s | held by %s process: server CPU | held by %s processes: server CPU |\n|---|---|---|---|---|\n",
		thousands(shapes[0]), thousands(shapes[1]))
	each := func(processes, leases int) time.Duration {
		of := slices.DeleteFunc(slices.Clone(measured), func(h *holding) bool { return h.processes != processes })
		nearest := slices.MinFunc(of, func(a, b *holding) int { return cmp.Compare(distance(a.leases, leases), distance(b.leases, leases)) })
		return nearest.perRenewal
	}
	for _, leases := range []int{1_000, 10_000, 100_000, 300_000, 1_000_000} {
		for _, ttl := range []time.Duration{10 * time.Second, 30 * time.Second} {
			rate := float64(leases) / (ttl / 3).Seconds()
			cells := []string{thousands(leases), ttl.String(), thousands(int(rate))}
			for _, processes := range shapes {
				share := 100 * rate * each(processes, leases).Seconds()
				text := fmt.Sprintf("%.1f %%", share)
				switch {
				case share > 100:
					text += ", too many"
				case share > ceiling:
					text += ", no reserve"
				}
				cells = append(cells, text)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// distance returns by which factor numbers differ.
func distance(a, b int) float64 {
	if a < b {
		a, b = b, a
	}
	return float64(a) / float64(b)
}

// thousands writes a number as 1,000.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
