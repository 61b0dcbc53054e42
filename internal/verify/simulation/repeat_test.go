//go:build !race

package simulation_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed repeats itself but for ties, of which a few worlds have one: where two things are ready
// at the same instant, Go picks one, and where the machine was busy its scheduler has another
// goroutine go on when one has run for 10 ms. So a world may have a few traces, and is run until
// one of them comes again. With the race detector, the scheduler takes goroutines in a random
// order, so that nothing could repeat itself: there this test is left out. make test runs it
// without.
func TestSimulation_repeatsItself(t *testing.T) {
	const tries = 10
	for _, b := range append(backends, sharing) {
		for seed := range min(seedsByDefault/5, 15) {
			seen := map[string]bool{}
			again := false
			for n := 0; n < tries && !again; n++ {
				trace := traced(t, b, seed)
				again = seen[trace]
				seen[trace] = true
			}
			require.True(t, again, "%s, seed %d: %d traces", b.name, seed, tries)
		}
	}
}

func traced(t *testing.T, b backend, seed uint64) string {
	w := simulate(t, b, mutation{}, seed, &tally{})
	return w.trace.since(w.start)
}
