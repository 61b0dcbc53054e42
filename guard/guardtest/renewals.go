package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func renewChecks() []check {
	return []check{
		{name: "a renewal restarts the TTL", run: renewStartsTTL},
		{name: "a renewed claim outlives its first TTL", run: renewedOutlives},
		{name: "a renewal by another claim is refused", run: refusesRenewal},
		{name: "a renewal does not restore a released claim", run: renewalAfterRelease},
		{name: "a renewal does not restore a claim that the store has lost", run: renewalAfterFlush, needs: flushes},
		{name: "a renewal does not end a minimum hold or a marker", run: renewalAfterMarker},
	}
}

func flushes(b Backend) bool { return b.Flush != nil }

func renewStartsTTL(s *subject) {
	c := s.claim("key")
	c.TTL = long / 2
	s.here.mustAcquire(c)
	c.TTL = long
	require.True(s, s.there.renew(c))
	require.Greater(s, s.there.requireBusy(s.claim("key"), c.TTL).Left, long/2)
}

func renewedOutlives(s *subject) {
	c := s.outlivesItsTTL(func() driver.Claim { return s.claim("key") }, long)
	s.there.requireBusy(s.claim("key"), c.TTL)
	require.True(s, s.here.renew(c))
}

// outlivesItsTTL makes a claim that has a short TTL, renews it for a longer one, and returns when
// the short one has passed.
func (s *subject) outlivesItsTTL(claim func() driver.Claim, renewed time.Duration) driver.Claim {
	s.Helper()
	for first := s.short(); ; first *= 2 {
		c := claim()
		c.TTL = first
		sent := time.Now()
		s.here.mustAcquire(c)
		c.TTL = renewed
		held := s.here.renew(c)
		if !held && time.Since(sent) >= first-early {
			require.Less(s, first, patience, "this machine is too slow for the check")
			continue // the machine stalled, and the claim expired before the renewal
		}
		require.True(s, held, "a renewal must return true before the TTL has passed")
		s.outlive(first)
		return c
	}
}

func refusesRenewal(s *subject) {
	c := s.claim("key")
	fence := s.here.mustAcquire(c).Fence
	unrelated := s.claim("key")
	sameOwner := s.claim("key") // has the holder's owner, but was never granted
	sameOwner.Owner = c.Owner
	for _, other := range []driver.Claim{unrelated, sameOwner} {
		other.TTL, other.Fence = 2*long, fence+ahead
		require.False(s, s.there.renew(other))
		s.there.requireBusy(s.claim("key"), c.TTL)
		require.Equal(s, fence, s.here.mustAcquire(c).Fence, "the holder's fence")
	}
	require.True(s, s.here.renew(c), "the holder must still hold the key")
	require.False(s, s.there.renew(s.claim("free")), "a renewal of a free key must return false")
	s.here.mustAcquire(s.claim("free"))
}

func renewalAfterRelease(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.here.mustRelease(c, driver.After{})
	require.False(s, s.here.renew(c))
	s.there.mustAcquire(s.claim("key"))
	require.False(s, s.here.renew(c))
}

func renewalAfterFlush(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.backend.Flush(s)
	require.False(s, s.here.renew(c))
	require.False(s, s.here.release(c, driver.After{Keep: long}))
	s.there.mustAcquire(s.claim("key"))
}

func renewalAfterMarker(s *subject) {
	kept, done := s.claim("kept"), s.claim("done")
	s.here.mustAcquire(kept)
	s.here.mustAcquire(done)
	s.here.mustRelease(kept, driver.After{Keep: long})
	s.here.mustRelease(done, driver.After{Keep: long, Done: true, Record: []byte("record")})
	for _, c := range []driver.Claim{kept, done} {
		c.TTL = 2 * long
		require.False(s, s.here.renew(c))
	}
	s.there.requireBusy(s.claim("kept"), long)
	require.Equal(s, "record", string(s.there.requireDone(s.claim("done"), long).Record))
}
