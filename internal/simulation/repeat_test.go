//go:build !race

package simulation_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed repeats itself but where the machine was busy: Go's scheduler has another goroutine go on when one has run for 10 ms, and then things
// come in another order. So each has a few tries. With the race detector, the scheduler takes goroutines in a random order, so that nothing could repeat itself: there this
// test is left out. make test runs it without.
func TestSimulation_repeatsItself(t *testing.T) {
	const tries = 3
	for _, b := range backends {
		for seed := range min(seedsByDefault/5, 15) {
			var first, again string
			for range tries {
				first, again = traced(t, b, seed), traced(t, b, seed)
				if first == again {
					break
				}
			}
			require.Equal(t, first, again, "%s, seed %d", b.name, seed)
		}
	}
}

func traced(t *testing.T, b backend, seed uint64) string {
	w := simulate(t, b, mutation{}, seed, &tally{})
	return w.trace.since(w.start)
}
