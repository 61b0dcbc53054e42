package guardtest

import (
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func releaseChecks() []check {
	return []check{
		{name: "a release frees the key at once", run: releaseFrees},
		{name: "a second release finds nothing and changes nothing", run: secondRelease},
		{name: "a release by another is refused", run: refusesRelease},
		{name: "a claim with the holder's owner is refused", run: refusesOwner, needs: keepsNoOwners},
	}
}

func keepsNoOwners(s Store) bool { return !s.Owners }

func releaseFrees(s *subject) {
	for range 10 {
		c := s.claim("key")
		s.here.take(c)
		s.here.give(c, guard.After{})
		c = s.claim("key")
		s.there.take(c)
		s.there.give(c, guard.After{Done: true, Record: []byte("for no time")})
	}
}

func secondRelease(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	s.here.give(c, guard.After{})
	require.False(s, s.here.release(c, guard.After{}))
	require.False(s, s.here.release(c, guard.After{Keep: long}))
	next := s.claim("key")
	s.there.take(next)
	require.False(s, s.here.release(c, guard.After{}))
	require.False(s, s.here.release(c, guard.After{Keep: 2 * long, Done: true}))
	s.here.refused(c, next.TTL)
	require.True(s, s.there.renew(next), "the next holder lost the key")
}

func refusesRelease(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	stranger := s.claim("key")
	namesake := s.claim("key") // of the same owner, but it was never granted
	namesake.Owner = c.Owner
	afters := []guard.After{{}, {Keep: 2 * long}, {Keep: 2 * long, Done: true, Record: []byte("forged")}}
	for _, other := range []guard.Claim{stranger, namesake} {
		for _, after := range afters {
			require.False(s, s.there.release(other, after))
			s.there.refused(s.claim("key"), c.TTL)
		}
	}
	require.True(s, s.here.renew(c), "the holder cannot renew any more")
	for _, after := range afters {
		require.False(s, s.there.release(s.claim("free"), after), "a release of a key that nobody holds")
	}
	s.here.take(s.claim("free"))
}

func refusesOwner(s *subject) {
	c := s.claim("key")
	c.Owner = "owner"
	s.here.take(c)
	again := s.claim("key")
	again.Owner = "owner"
	s.there.refused(again, c.TTL)
	s.here.give(c, guard.After{})
	s.there.take(again)
}
