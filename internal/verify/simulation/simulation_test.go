package simulation_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' words about connections that fail
	// the goroutines of a bubble take turns: waking another processor for each costs more
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // a world is small, and makes much garbage
	os.Exit(m.Run())
}

// A tally counts what happened, so that a simulation in which nothing happens does not pass for a
// good one.
type tally struct {
	runs, handed, lost, overlaps, written, stale, refused, done, ticks, most atomic.Int64
}

func (t *tally) String() string {
	return fmt.Sprintf("%d runs (%d under leases that were handed off), %d leases lost, %d overlaps, %d writes (%d stale), %d stale writes refused, %d found it done, %d ticks, at most %d holders at a time",
		t.runs.Load(), t.handed.Load(), t.lost.Load(), t.overlaps.Load(), t.written.Load(), t.stale.Load(), t.refused.Load(), t.done.Load(), t.ticks.Load(), t.most.Load())
}

func TestSimulation(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			all := simulateAll(t, b)
			if len(seeds(t, b)) < 30 {
				return // too few for all to happen
			}
			require.NotZero(t, all.done.Load())
			require.NotZero(t, all.ticks.Load())
		})
	}
}

// simulateAll runs the worlds of all seeds, until one is in error.
func simulateAll(t *testing.T, b backend) *tally {
	t.Helper()
	all := new(tally)
	for _, seed := range seeds(t, b) {
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := simulate(t, b, mutation{}, seed, all)
			if len(w.violations) > 0 || os.Getenv("ONERUN_SIM_SEED") != "" {
				t.Log("\n" + w.trace.since(w.start))
			}
			require.Empty(t, w.violations, "replay: ONERUN_SIM_SEED=%d go test ./internal/verify/simulation -run %s", seed, t.Name())
		})
		if !ok {
			t.FailNow() // one trace is enough to look at
		}
	}
	t.Log(all)
	if len(seeds(t, b)) >= 30 { // enough for all to happen
		require.NotZero(t, all.lost.Load())
		require.NotZero(t, all.handed.Load())
	}
	return all
}

// seeds returns the seeds to run: that of ONERUN_SIM_SEED, or as many as ONERUN_SIM_SEEDS says,
// from ONERUN_SIM_FIRST on.
func seeds(t *testing.T, b backend) []uint64 {
	t.Helper()
	if one := os.Getenv("ONERUN_SIM_SEED"); one != "" {
		return []uint64{number(t, one)}
	}
	n := seedsByDefault
	if b.servers > 1 {
		n = n * 2 / 5 // they take three times as long
	}
	if many := os.Getenv("ONERUN_SIM_SEEDS"); many != "" {
		n = number(t, many)
	}
	first := uint64(0)
	if from := os.Getenv("ONERUN_SIM_FIRST"); from != "" {
		first = number(t, from)
	}
	var all []uint64
	for seed := range n {
		all = append(all, first+seed)
	}
	return all
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}
