package guardtest

import (
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func releaseChecks() []check {
	return []check{
		{name: "a release frees the key at once", run: releaseFrees},
		{name: "a second release returns false and changes nothing", run: secondRelease},
		{name: "a release by another claim is refused", run: refusesRelease},
		{name: "a claim with the holder's owner is refused", run: refusesOwner, needs: keepsNoOwners},
	}
}

func keepsNoOwners(b Backend) bool { return !b.Owners }

func releaseFrees(s *subject) {
	for range 10 {
		c := s.claim("key")
		s.here.mustAcquire(c)
		s.here.mustRelease(c, driver.After{})
		c = s.claim("key")
		s.there.mustAcquire(c)
		s.there.mustRelease(c, driver.After{Done: true, Record: []byte("not kept")})
	}
}

func secondRelease(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.here.mustRelease(c, driver.After{})
	require.False(s, s.here.release(c, driver.After{}))
	require.False(s, s.here.release(c, driver.After{Keep: long}))
	next := s.claim("key")
	s.there.mustAcquire(next)
	require.False(s, s.here.release(c, driver.After{}))
	require.False(s, s.here.release(c, driver.After{Keep: 2 * long, Done: true}))
	s.here.requireBusy(c, next.TTL)
	require.True(s, s.there.renew(next), "the next holder must still hold the key")
}

func refusesRelease(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	unrelated := s.claim("key")
	sameOwner := s.claim("key") // has the holder's owner, but was never granted
	sameOwner.Owner = c.Owner
	afters := []driver.After{{}, {Keep: 2 * long}, {Keep: 2 * long, Done: true, Record: []byte("forged")}}
	for _, other := range []driver.Claim{unrelated, sameOwner} {
		for _, after := range afters {
			require.False(s, s.there.release(other, after))
			s.there.requireBusy(s.claim("key"), c.TTL)
		}
	}
	require.True(s, s.here.renew(c), "the holder must still hold the key")
	for _, after := range afters {
		require.False(s, s.there.release(s.claim("free"), after), "a release of a free key must return false")
	}
	s.here.mustAcquire(s.claim("free"))
}

func refusesOwner(s *subject) {
	c := s.claim("key")
	c.Owner = "owner"
	s.here.mustAcquire(c)
	again := s.claim("key")
	again.Owner = "owner"
	s.there.requireBusy(again, c.TTL)
	s.here.mustRelease(c, driver.After{})
	s.there.mustAcquire(again)
}
