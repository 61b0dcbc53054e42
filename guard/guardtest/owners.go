package guardtest

import (
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func ownerChecks() []check {
	return []check{
		{name: "an owner holds a key twice with one fence", run: ownerJoins, needs: keepsOwners},
		{name: "a key is free after its owner's last release", run: lastHoldFrees, needs: keepsOwners},
		{name: "a release ends only the hold with its ID", run: releasesOneHold, needs: keepsOwners},
		{name: "an owner's last release leaves the marker", run: lastHoldMarks, needs: keepsOwners},
		{name: "a backend that keeps owners says so", run: saysThatItKeepsOwners, needs: keepsOwners},
	}
}

func keepsOwners(b Backend) bool { return b.Owners }

// owned returns two claims of one key with the same owner.
func (s *subject) owned() (first, second driver.Claim) {
	first, second = s.claim("key"), s.claim("key")
	first.Owner, second.Owner = "an owner", "an owner"
	return first, second
}

func ownerJoins(s *subject) {
	first, second := s.owned()
	fence := s.here.mustAcquire(first).Fence
	joined := s.there.mustAcquire(second)
	require.Equal(s, fence, joined.Fence)
	require.True(s, joined.Held, "Held must be true in the answer to a second claim of the owner")
	s.there.requireBusy(s.claim("key"), long)
	other, third := s.owned()
	other.Owner += "'s friend"
	s.there.requireBusy(other, long)

	first.Fence = fence + ahead
	require.True(s, s.here.renew(first))
	require.True(s, s.there.renew(second))
	require.Equal(s, first.Fence, s.there.mustAcquire(third).Fence, "the owner's fence after a renewal has raised it")
}

func lastHoldFrees(s *subject) {
	for _, firstGoesFirst := range []bool{true, false} {
		one, two := s.owned()
		s.here.mustAcquire(one)
		s.there.mustAcquire(two)
		s.there.mustAcquire(two) // a repeated claim counts once
		if !firstGoesFirst {
			one, two = two, one
		}
		s.here.mustRelease(one, driver.After{})
		s.there.requireBusy(s.claim("key"), long)
		require.True(s, s.there.renew(two), "the owner's other claim must still be held")
		s.there.mustRelease(two, driver.After{})
		next := s.claim("key")
		s.here.mustAcquire(next)
		s.here.mustRelease(next, driver.After{})
	}
}

func releasesOneHold(s *subject) {
	first, second := s.owned()
	s.here.mustAcquire(first)
	s.there.mustAcquire(second)
	s.here.mustRelease(first, driver.After{})
	require.False(s, s.here.release(first, driver.After{}), "a second release must return false")
	require.False(s, s.here.renew(first), "a renewal of a released claim must return false")
	require.True(s, s.there.renew(second), "the owner's other claim must still be held")
	s.here.requireBusy(s.claim("key"), long)
}

func lastHoldMarks(s *subject) {
	first, second := s.owned()
	s.here.mustAcquire(first)
	s.there.mustAcquire(second)
	s.here.mustRelease(first, driver.After{})
	s.there.mustRelease(second, driver.After{Keep: long, Done: true, Record: []byte("record")})
	_, third := s.owned()
	require.Equal(s, "record", string(s.here.requireDone(third, long).Record))
}

// saysThatItKeepsOwners checks a fact on which a Guard relies. If the backend keeps owners, the
// calls of each owner wait in a queue of their own, because a holder may wait for other calls of
// its owner.
func saysThatItKeepsOwners(s *subject) {
	require.True(s, driver.Describe(s.here.locker).Owners)
}
