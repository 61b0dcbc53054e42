package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/leases"
	"github.com/seed-1795987d/onerun/examples/internal/leasestest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// users are fewer than those that the program lets in, and more than there are coupons.
const users = 120

// second returns how many coupons went to users that had one.
func second(s stock) int {
	return len(s.Claims) - len(slices.Compact(slices.Sorted(slices.Values(s.Claims))))
}

func TestCoupon_givesAHundredUsersOneEach(t *testing.T) {
	leasestest.On(t, leasestest.Embedded, givesAHundredUsersOneEach)
}

// The servers of SQL answer each click that comes again, which keeps them busy for minutes.
func TestWeekly_couponGivesAHundredUsersOneEachOnServers(t *testing.T) {
	leftout.IfShort(t)
	leasestest.On(t, leasestest.Servers, givesAHundredUsersOneEach)
}

func givesAHundredUsersOneEach(t *testing.T, store *leases.Store) {
	got := run(store, true, users)
	require.Len(t, got.Claims, coupons)
	require.Zero(t, second(got))
	require.Zero(t, got.Remaining)
	require.Positive(t, got.Refused, "late writes of the frozen server")
	require.True(t, report(got))
}

func TestCoupon_withoutTheGuardGivesAwayTooMany(t *testing.T) {
	got := run(leases.Open("redis", ""), false, users)
	require.Greater(t, len(got.Claims), coupons)
	require.Positive(t, second(got))
	require.Zero(t, got.Refused, "the database cannot know what is late")
	require.False(t, report(got))
}

// One figure that is wrong is enough.
func TestReport_findsEachPromiseThatIsBroken(t *testing.T) {
	var hundred []string
	for i := range coupons {
		hundred = append(hundred, string(rune('a'+i)))
	}
	require.True(t, report(stock{Claims: hundred}))
	for name, broken := range map[string]stock{
		"too few":     {Claims: hundred[1:]},
		"one has two": {Claims: append(slices.Clone(hundred[1:]), hundred[1])},
	} {
		require.False(t, report(broken), name)
	}
}
