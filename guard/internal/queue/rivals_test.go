package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRivals_windowGrowsWhenClaimsMeetAndShrinksWithGrants(t *testing.T) {
	r := rivals{}
	require.Zero(t, r.window("k", time.Millisecond), "nothing is delayed if claims have never met")
	last := time.Duration(0)
	for range 6 {
		r.collided("k")
		window := r.window("k", time.Millisecond)
		require.Greater(t, window, last)
		last = window
	}
	for range 10 {
		r.collided("k")
	}
	require.Equal(t, mostRivals*rivalTrips*time.Millisecond, r.window("k", time.Millisecond))
	require.Zero(t, r.window("other", time.Millisecond))
	for range 100 {
		r.granted("k")
	}
	require.Empty(t, r, "a key without rivals is forgotten")
	for i := range 10 * mostRivalKeys {
		r.collided(fmt.Sprint(i))
		require.LessOrEqual(t, len(r), mostRivalKeys)
	}
}

func TestRivals_windowGrowsSlowlyWhenTheClaimComesTooLate(t *testing.T) {
	r := rivals{}
	for i := range 2 * mostRivals {
		r.cameTooLate("k")
		require.Equal(t, time.Duration(min(i+1, mostRivals)*rivalTrips)*time.Millisecond, r.window("k", time.Millisecond))
	}
	for i := range 10 * mostRivalKeys {
		r.cameTooLate(fmt.Sprint(i))
		require.LessOrEqual(t, len(r), mostRivalKeys)
	}
}
