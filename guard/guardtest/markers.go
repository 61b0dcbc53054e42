package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func markerChecks() []check {
	return []check{
		{name: "a minimum hold keeps the key busy for every claim", run: keepsBusy},
		{name: "a minimum hold ends", run: holdEnds},
		{name: "a minimum hold of a fraction of a millisecond is not rounded to zero", run: fractionOfHold},
		{name: "a done marker answers with its record", run: answersDone},
		{name: "a done marker ends with its window", run: markerEnds},
	}
}

// keeps are two durations for which a key is kept: one shorter and one longer than the TTL of the
// lease.
var keeps = [...]time.Duration{long / 2, 2 * long}

func keepsBusy(s *subject) {
	for i, keep := range keeps {
		c := s.claim([]string{"less", "more"}[i])
		s.here.mustAcquire(c)
		s.here.mustRelease(c, driver.After{Keep: keep})
		g := s.there.requireBusy(s.claim(c.Key), keep)
		require.Greater(s, g.Left, keep-long/4)
		require.Empty(s, g.Record, "Record must be empty if the key is busy")
		s.here.requireBusy(c, keep) // the same ID as the released claim
		require.False(s, s.here.renew(c), "a renewal must return false during the minimum hold")
	}
}

func holdEnds(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	sent := time.Now()
	s.here.mustRelease(c, driver.After{Keep: s.short()})
	s.there.awaitGrant(s.claim("key"), driver.Busy, sent.Add(s.short()))
}

func fractionOfHold(s *subject) {
	busy := s.seenBusy(s.hold, func(c driver.Claim, d time.Duration) {
		s.here.mustRelease(c, driver.After{Keep: d})
	})
	require.True(s, busy, "no other claim ever found a minimum hold of %v busy", s.fraction())
	s.there.awaitGrant(s.claim("key"), driver.Busy, time.Time{})
}

func answersDone(s *subject) {
	for i, keep := range keeps {
		c := s.claim([]string{"less", "more"}[i])
		s.here.mustAcquire(c)
		s.here.mustRelease(c, driver.After{Keep: keep, Done: true, Record: []byte("record")})
		for _, next := range []driver.Claim{s.claim(c.Key), c} {
			g := s.there.requireDone(next, keep)
			require.Greater(s, g.Left, keep-long/4)
			require.Equal(s, "record", string(g.Record))
		}
		require.False(s, s.here.renew(c), "a renewal must return false after the key is done")
	}
}

func markerEnds(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	sent := time.Now()
	s.here.mustRelease(c, driver.After{Keep: s.short(), Done: true, Record: []byte("record")})
	next := s.claim("key")
	g := s.there.awaitGrant(next, driver.Done, sent.Add(s.short()))
	require.Empty(s, g.Record, "Record of a grant must be empty")
	// a node of a quorum may have got the marker later than the others, so that it ends later there
	s.eventually(func() bool { g = s.here.acquire(c); return g.State != driver.Done }, "the marker ends")
	require.Equal(s, driver.Busy, g.State, "the answer to the claim whose marker has ended")
	s.here.requireLeft(g, next.TTL)
}

func repeatChecks() []check {
	return []check{
		{name: "a repeated release changes nothing", run: repeatedRelease},
		{name: "a plain release leaves a minimum hold and a marker as they are", run: plainRelease},
		{name: "a release by another claim leaves a minimum hold and a marker as they are", run: releaseByAnother},
	}
}

// kept returns two released claims: one that left a minimum hold, and one that left a marker. Both
// last for long.
func (s *subject) kept() (hold, done driver.Claim) {
	hold, done = s.claim("hold"), s.claim("done")
	s.here.mustAcquire(hold)
	s.here.mustAcquire(done)
	s.here.mustRelease(hold, driver.After{Keep: long})
	s.here.mustRelease(done, driver.After{Keep: long, Done: true, Record: []byte("first")})
	return hold, done
}

// stillKept checks that the minimum hold and the marker of kept are unchanged.
func (s *subject) stillKept() {
	s.Helper()
	require.Greater(s, s.there.requireBusy(s.claim("hold"), long).Left, long/2)
	g := s.there.requireDone(s.claim("done"), long)
	require.Greater(s, g.Left, long/2)
	require.Equal(s, "first", string(g.Record))
}

func repeatedRelease(s *subject) {
	hold, done := s.kept()
	for _, keep := range keeps {
		s.there.mustRelease(hold, driver.After{Keep: keep})
		s.there.mustRelease(hold, driver.After{Keep: keep, Done: true, Record: []byte("second")})
		s.there.mustRelease(done, driver.After{Keep: keep})
		s.there.mustRelease(done, driver.After{Keep: keep, Done: true, Record: []byte("second")})
		s.stillKept()
	}
}

// plainRelease checks a clean-up. A Guard releases a claim plainly, some time later, if a request
// with that claim had no answer. The answer to that release does not matter.
func plainRelease(s *subject) {
	hold, done := s.kept()
	for range 2 {
		s.there.release(hold, driver.After{})
		s.there.release(done, driver.After{})
		s.stillKept()
	}
}

func releaseByAnother(s *subject) {
	hold, done := s.kept()
	for _, key := range []string{hold.Key, done.Key} {
		require.False(s, s.there.release(s.claim(key), driver.After{}))
		require.False(s, s.there.release(s.claim(key), driver.After{Keep: 2 * long}))
		require.False(s, s.there.release(s.claim(key), driver.After{Keep: 2 * long, Done: true, Record: []byte("forged")}))
	}
	s.stillKept()
}
