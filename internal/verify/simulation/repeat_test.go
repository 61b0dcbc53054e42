//go:build !race

package simulation_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed repeats itself except for ties, which a few worlds have. If two things are ready at the
// same instant, Go picks one. If the machine was busy, the scheduler switches to another goroutine
// when one has run for 10 ms. So a world may have a few traces, and the test runs it until one of
// them comes again. With the race detector, the scheduler takes goroutines in a random order, and
// nothing could repeat itself: this test is left out there. make test runs it without the
// detector.
func TestSimulation_repeatsItself(t *testing.T) {
	const tries = 10
	for _, b := range append(backends, sharing) {
		for seed := range min(seedsByDefault, 4) {
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
