package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/page"
)

// A fleet is many processes that want one key again and again, on one server, in a world in which
// nothing goes wrong.
type fleet struct {
	processes int
	fair      bool
	span      time.Duration
}

const (
	// fleetWork is how long a process works under the key, and fleetRest how long it rests then.
	fleetWork, fleetRest = time.Millisecond, 100 * time.Millisecond
	// fleetService is how long the server takes for a request, about as long as Redis does.
	fleetService = 15 * time.Microsecond
)

// A fleetResult is the result of a fleet.
type fleetResult struct {
	fleet
	runs, requests int64
	without        int // processes that had no run
	gaps, waits    []time.Duration
	violations     []string
}

const fleetHead = "| processes | `WithFair` | runs/s | requests per run | server busy | gap between two holders, p50 / p99 | wait, p50 / p99 / max | processes without a run |\n" +
	"|---|---|---|---|---|---|---|---|"

func (r fleetResult) String() string {
	seconds := r.span.Seconds()
	fair := map[bool]string{false: "no", true: "yes"}[r.fair]
	return fmt.Sprintf("| %d | %s | %.0f | %.1f | %.0f %% | %s / %s | %s / %s / %s | %d |", r.processes, fair,
		float64(r.runs)/seconds, float64(r.requests)/float64(max(r.runs, 1)),
		100*float64(r.requests)*fleetService.Seconds()/seconds,
		rounded(r.gaps, 0.5), rounded(r.gaps, 0.99), rounded(r.waits, 0.5), rounded(r.waits, 0.99), rounded(r.waits, 1), r.without)
}

// rounded returns a percentile, to three digits.
func rounded(all []time.Duration, part float64) string {
	if len(all) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(all))
	d := sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// run runs the fleet in a bubble.
func (f fleet) run(t *testing.T) (r fleetResult) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := &world{backend: backends[0], tally: new(tally), service: fleetService}
		w.start = time.Now().Add(-chaos) // all is calm
		w.servers = []*server{newServer(w, 0)}
		n := &fleetRun{world: w, result: fleetResult{fleet: f}}
		for i := range f.processes {
			w.processes = append(w.processes, n.process(t, i))
		}
		ctx, end := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for _, p := range w.processes {
			all.Go(func() { n.loop(ctx, t, p) })
		}
		time.Sleep(f.span)
		n.result.requests = w.requests.Load()
		end()
		all.Wait()
		w.close()
		for _, v := range w.violations {
			n.result.violations = append(n.result.violations, v.String())
		}
		r = n.result
	})
	require.Empty(t, r.violations)
	return r
}

// A fleetRun is a fleet at work.
type fleetRun struct {
	world *world

	mu     sync.Mutex
	inside int
	left   time.Time // when the last holder has ended
	fence  uint64
	result fleetResult
}

func (n *fleetRun) process(t *testing.T, number int) *process {
	w := n.world
	p := &process{name: fmt.Sprintf("p%d", number), world: w, dials: make([]atomic.Int64, 1)}
	p.clients = append(p.clients, p.client(w.servers[0]))
	opts := []guard.Option{guard.WithTTL(10 * time.Second), guard.WithWait(guard.Forever)}
	if n.result.fair {
		opts = append(opts, guard.WithFair())
	}
	var err error
	p.guard, err = guard.New(closedBy(p, single.New(p.clients[0])), opts...)
	require.NoError(t, err)
	return p
}

// loop has a process take the key until the context ends.
func (n *fleetRun) loop(ctx context.Context, t *testing.T, p *process) {
	rng, runs := n.world.rng(p.name), 0
	time.Sleep(upTo(rng, fleetRest))
	for ctx.Err() == nil {
		asked := time.Now()
		err := p.guard.Do(ctx, "k", func(ctx context.Context) error {
			n.begin(asked, guard.Fence(ctx))
			time.Sleep(fleetWork)
			n.end()
			return nil
		})
		switch {
		case err == nil:
			runs++
		case !errors.Is(err, context.Canceled):
			t.Errorf("%s: %v", p.name, err)
		}
		time.Sleep(fleetRest + upTo(rng, fleetRest/10))
	}
	if runs == 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.result.without++
	}
}

func (n *fleetRun) begin(asked time.Time, fence uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inside++; n.inside > 1 || fence <= n.fence {
		n.result.violations = append(n.result.violations, fmt.Sprintf("%d holders, fence %d after %d", n.inside, fence, n.fence))
	}
	n.fence = fence
	if !n.left.IsZero() {
		n.result.gaps = append(n.result.gaps, time.Since(n.left))
	}
	n.result.waits = append(n.result.waits, time.Since(asked))
}

func (n *fleetRun) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inside--
	n.left = time.Now()
	n.result.runs++
}

// scaleEnv asks for the full form, which writes the table in docs/scale.md.
const scaleEnv = "ONERUN_SCALE"

// One key that all processes of a fleet want.
func TestFleet_takesTurns(t *testing.T) {
	docs := page.Page{Name: "../../../docs/scale.md", Target: "scale"}
	sizes, span, full := []int{1, 10}, time.Second, os.Getenv(scaleEnv) != ""
	if full {
		sizes, span = []int{1, 10, 100, 1000}, 5*time.Second
	}
	var table strings.Builder
	fmt.Fprintln(&table, fleetHead)
	for _, n := range sizes {
		for _, fair := range []bool{false, true} {
			r := fleet{n, fair, span}.run(t)
			require.Positive(t, r.runs)
			fmt.Fprintln(&table, r)
			t.Log(r)
		}
	}
	if full {
		require.NoError(t, docs.SetPart("one-key", table.String()))
	}
}
