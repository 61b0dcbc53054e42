package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func renewChecks() []check {
	return []check{
		{name: "a renewal lasts for its TTL from then on", run: renewStartsTTL},
		{name: "a renewed claim outlives its first TTL", run: renewedOutlives},
		{name: "a renewal by another is refused", run: refusesRenewal},
		{name: "a renewal does not bring back what was released", run: renewalAfterRelease},
		{name: "a renewal does not bring back what the store has lost", run: renewalAfterFlush, needs: flushes},
		{name: "a renewal does not end a minimum hold or a marker", run: renewalAfterMarker},
	}
}

func flushes(s Store) bool { return s.Flush != nil }

func renewStartsTTL(s *subject) {
	c := s.claim("key")
	c.TTL = long / 2
	s.here.take(c)
	c.TTL = long
	require.True(s, s.there.renew(c))
	require.Greater(s, s.there.refused(s.claim("key"), c.TTL).Left, long/2)
}

func renewedOutlives(s *subject) {
	for first := s.short(); ; first *= 2 {
		c := s.claim("key")
		c.TTL = first
		sent := time.Now()
		s.here.take(c)
		c.TTL = long
		held := s.here.renew(c)
		if !held && time.Since(sent) >= first-early {
			require.Less(s, first, patience, "this machine is too slow")
			continue // the machine stalled, and the claim had ended by then
		}
		require.True(s, held, "the renewal was refused")
		s.outlive(first)
		s.there.refused(s.claim("key"), c.TTL)
		require.True(s, s.here.renew(c))
		return
	}
}

func refusesRenewal(s *subject) {
	c := s.claim("key")
	fence := s.here.take(c).Fence
	stranger := s.claim("key")
	namesake := s.claim("key") // of the same owner, but it was never granted
	namesake.Owner = c.Owner
	for _, other := range []guard.Claim{stranger, namesake} {
		other.TTL, other.Fence = 2*long, fence+ahead
		require.False(s, s.there.renew(other))
		s.there.refused(s.claim("key"), c.TTL)
		require.Equal(s, fence, s.here.take(c).Fence, "the holder's fence")
	}
	require.True(s, s.here.renew(c), "the holder cannot renew any more")
	require.False(s, s.there.renew(s.claim("free")), "a renewal of a key that nobody holds")
	s.here.take(s.claim("free"))
}

func renewalAfterRelease(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	s.here.give(c, guard.After{})
	require.False(s, s.here.renew(c))
	s.there.take(s.claim("key"))
	require.False(s, s.here.renew(c))
}

func renewalAfterFlush(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	s.store.Flush(s)
	require.False(s, s.here.renew(c))
	require.False(s, s.here.release(c, guard.After{Keep: long}))
	s.there.take(s.claim("key"))
}

func renewalAfterMarker(s *subject) {
	kept, done := s.claim("kept"), s.claim("done")
	s.here.take(kept)
	s.here.take(done)
	s.here.give(kept, guard.After{Keep: long})
	s.here.give(done, guard.After{Keep: long, Done: true, Record: []byte("record")})
	for _, c := range []guard.Claim{kept, done} {
		c.TTL = 2 * long
		require.False(s, s.here.renew(c))
	}
	s.there.refused(s.claim("kept"), long)
	require.Equal(s, "record", string(s.there.finished(s.claim("done"), long).Record))
}
