package guardtest

import (
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func ownerChecks() []check {
	return []check{
		{name: "an owner holds a key twice with one fence", run: ownerJoins, needs: keepsOwners},
		{name: "a key is free when its owner's last hold has gone", run: lastHoldFrees, needs: keepsOwners},
		{name: "a release takes one hold of an owner's, by its ID", run: releasesOneHold, needs: keepsOwners},
		{name: "an owner's last hold leaves a marker", run: lastHoldMarks, needs: keepsOwners},
		{name: "who keeps owners does not say that it keeps none", run: saysThatItKeepsOwners, needs: keepsOwners},
	}
}

func keepsOwners(s Store) bool { return s.Owners }

// owned returns claims of one key that have one owner.
func (s *subject) owned() (first, second guard.Claim) {
	first, second = s.claim("key"), s.claim("key")
	first.Owner, second.Owner = "an owner", "an owner"
	return first, second
}

func ownerJoins(s *subject) {
	first, second := s.owned()
	fence := s.here.take(first).Fence
	joined := s.there.take(second)
	require.Equal(s, fence, joined.Fence)
	require.True(s, joined.Held, "the answer to a claim that joins")
	s.there.refused(s.claim("key"), long)
	other, third := s.owned()
	other.Owner += "'s friend"
	s.there.refused(other, long)

	first.Fence = fence + ahead
	require.True(s, s.here.renew(first))
	require.True(s, s.there.renew(second))
	require.Equal(s, first.Fence, s.there.take(third).Fence, "the fence after it was raised")
}

func lastHoldFrees(s *subject) {
	for _, firstGoesFirst := range []bool{true, false} {
		one, two := s.owned()
		s.here.take(one)
		s.there.take(two)
		s.there.take(two) // a repeat, which counts once
		if !firstGoesFirst {
			one, two = two, one
		}
		s.here.give(one, guard.After{})
		s.there.refused(s.claim("key"), long)
		require.True(s, s.there.renew(two), "the hold that is left")
		s.there.give(two, guard.After{})
		next := s.claim("key")
		s.here.take(next)
		s.here.give(next, guard.After{})
	}
}

func releasesOneHold(s *subject) {
	first, second := s.owned()
	s.here.take(first)
	s.there.take(second)
	s.here.give(first, guard.After{})
	require.False(s, s.here.release(first, guard.After{}), "a second release")
	require.False(s, s.here.renew(first), "a renewal of a hold that has gone")
	require.True(s, s.there.renew(second), "the hold that is left")
	s.here.refused(s.claim("key"), long)
}

func lastHoldMarks(s *subject) {
	first, second := s.owned()
	s.here.take(first)
	s.there.take(second)
	s.here.give(first, guard.After{})
	s.there.give(second, guard.After{Keep: long, Done: true, Record: []byte("record")})
	_, third := s.owned()
	require.Equal(s, "record", string(s.here.finished(third, long).Record))
}

// saysThatItKeepsOwners is what lets calls of an owner pass others who wait: the holder may wait for them.
func saysThatItKeepsOwners(s *subject) {
	o, ok := guard.Ability[guard.Ownerless](s.here.locker)
	require.False(s, ok && o.Ownerless())
}
