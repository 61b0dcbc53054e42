package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/leases"
	"github.com/seed-1795987d/onerun/examples/internal/leasestest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func TestLottery_drawsTenWinnersOnce(t *testing.T) {
	leasestest.On(t, slices.Concat(leasestest.Embedded, leasestest.Servers), func(t *testing.T, store *leases.Store) {
		got := run(store, true)
		require.Len(t, got.Winners, winners)
		require.Equal(t, 1, got.Draws)
		require.Positive(t, got.Refused, "late writes of the frozen replica")
		require.True(t, report(got))
	})
}

func TestLottery_withoutTheGuardEachReplicaDraws(t *testing.T) {
	got := run(leases.Open("redis", ""), false)
	require.Len(t, got.Winners, replicas*winners)
	require.Equal(t, replicas, got.Draws)
	require.Zero(t, got.Refused, "the database cannot know what is late")
	require.False(t, report(got))
}

// One figure that is wrong is enough.
func TestReport_findsEachPromiseThatIsBroken(t *testing.T) {
	ten := make([]int, winners)
	require.True(t, report(raffle{Draws: 1, Winners: ten}))
	for name, broken := range map[string]raffle{
		"no draw": {Winners: ten},
		"too few": {Draws: 1, Winners: ten[1:]},
	} {
		require.False(t, report(broken), name)
	}
}
