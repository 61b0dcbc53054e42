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
	"github.com/seed-1795987d/onerun/internal/page"
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
	// fleetService is how long the server takes for a request, about as long as Redis with a socket.
	fleetService = 15 * time.Microsecond
)

// A fleetResult is what came of it.
type fleetResult struct {
	fleet
	runs, overlaps, requests int64
	without                  int // processes that had no run
	gaps                     []time.Duration
	waits                    []time.Duration
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
	synctest.Test(t, func(*testing.T) { r = f.inBubble(t) })
	return r
}

func (f fleet) inBubble(t *testing.T) fleetResult {
	w := &world{backend: backends[0], tally: new(tally), service: fleetService}
	w.start = time.Now().Add(-chaos) // all is calm
	w.servers = []*server{newServer(w, 0)}
	r := fleetResult{fleet: f}
	var mu sync.Mutex
	var inside, begun atomic.Int64
	var left time.Time
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range f.processes {
		p := &process{name: fmt.Sprintf("p%d", i), world: w, dials: make([]atomic.Int64, 1)}
		p.clients = append(p.clients, p.client(w.servers[0]))
		opts := []guard.Option{guard.WithTTL(10 * time.Second), guard.WithWait(guard.Forever)}
		if f.fair {
			opts = append(opts, guard.WithFair())
		}
		g, err := guard.New(single.New(p.clients[0]), opts...)
		require.NoError(t, err)
		p.guard = g
		w.processes = append(w.processes, p)
		all.Go(func() {
			mine := 0
			rng := w.rng(p.name)
			time.Sleep(upTo(rng, fleetRest))
			for ctx.Err() == nil {
				asked := time.Now()
				err := g.Do(ctx, "k", func(context.Context) error {
					now := time.Now()
					if inside.Add(1) > 1 {
						mu.Lock()
						r.overlaps++
						mu.Unlock()
					}
					mu.Lock()
					if !left.IsZero() {
						r.gaps = append(r.gaps, now.Sub(left))
					}
					r.waits = append(r.waits, now.Sub(asked))
					mu.Unlock()
					time.Sleep(fleetWork)
					mu.Lock()
					left = time.Now()
					r.runs++
					mu.Unlock()
					inside.Add(-1)
					return nil
				})
				if err == nil {
					mine++
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", p.name, err)
				}
				time.Sleep(fleetRest + upTo(rng, fleetRest/10))
			}
			if mine == 0 {
				mu.Lock()
				r.without++
				mu.Unlock()
			}
		})
	}
	time.Sleep(f.span)
	begun.Store(w.requests.Load())
	end()
	all.Wait()
	r.requests = begun.Load()
	for _, p := range w.processes {
		require.NoError(t, p.guard.Close(context.Background()))
		_ = p.clients[0].Close()
	}
	time.Sleep(5 * time.Second) // longer than a message can be on its way
	for _, s := range w.servers {
		s.close()
	}
	return r
}

// scaleEnv asks for the full form, which writes the table in docs/scale.md.
const scaleEnv = "ONERUN_SCALE"

// One key that all processes of a fleet want.
func TestFleet_takesTurns(t *testing.T) {
	docs := page.Page{Name: "../../docs/scale.md", Target: "scale"}
	sizes, span, full := []int{1, 10}, time.Second, os.Getenv(scaleEnv) != ""
	if full {
		sizes, span = []int{1, 10, 100, 1000}, 5*time.Second
	}
	var table strings.Builder
	fmt.Fprintln(&table, fleetHead)
	for _, n := range sizes {
		for _, fair := range []bool{false, true} {
			r := fleet{n, fair, span}.run(t)
			require.Zero(t, r.overlaps)
			require.Positive(t, r.runs)
			fmt.Fprintln(&table, r)
			t.Log(r)
		}
	}
	if full {
		require.NoError(t, docs.SetPart("one-key", table.String()))
	}
}
