package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func markerChecks() []check {
	return []check{
		{name: "a minimum hold keeps the key busy for everybody", run: keepsBusy},
		{name: "a minimum hold ends", run: holdEnds},
		{name: "a minimum hold of a fraction of a millisecond is not nothing", run: fractionOfHold},
		{name: "a done marker answers with its record", run: answersDone},
		{name: "a done marker ends with its window", run: markerEnds},
	}
}

// keeps are two times for which a key may be kept: less and more than its lease would have lasted.
var keeps = [...]time.Duration{long / 2, 2 * long}

func keepsBusy(s *subject) {
	for i, keep := range keeps {
		c := s.claim([]string{"less", "more"}[i])
		s.here.take(c)
		s.here.give(c, guard.After{Keep: keep})
		g := s.there.refused(s.claim(c.Key), keep)
		require.Greater(s, g.Left, keep-long/4)
		require.Empty(s, g.Record, "the record of a key that is busy")
		s.here.refused(c, keep) // a new claim with the ID of the old one
		require.False(s, s.here.renew(c), "a renewal in the minimum hold")
	}
}

func holdEnds(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	sent := time.Now()
	s.here.give(c, guard.After{Keep: s.short()})
	s.there.waitFor(s.claim("key"), guard.Busy, sent.Add(s.short()))
}

func fractionOfHold(s *subject) {
	busy := s.seenBusy(func(c guard.Claim) {
		s.here.take(c)
		s.here.give(c, guard.After{Keep: s.fraction()})
	})
	require.True(s, busy, "a minimum hold of %v was never seen by another", s.fraction())
	s.there.waitFor(s.claim("key"), guard.Busy, time.Time{})
}

func answersDone(s *subject) {
	for i, keep := range keeps {
		c := s.claim([]string{"less", "more"}[i])
		s.here.take(c)
		s.here.give(c, guard.After{Keep: keep, Done: true, Record: []byte("record")})
		for _, next := range []guard.Claim{s.claim(c.Key), c} {
			g := s.there.finished(next, keep)
			require.Greater(s, g.Left, keep-long/4)
			require.Equal(s, "record", string(g.Record))
		}
		require.False(s, s.here.renew(c), "a renewal of what is done")
	}
}

func markerEnds(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	sent := time.Now()
	s.here.give(c, guard.After{Keep: s.short(), Done: true, Record: []byte("record")})
	next := s.claim("key")
	g := s.there.waitFor(next, guard.Done, sent.Add(s.short()))
	require.Empty(s, g.Record, "the record in a grant")
	s.here.refused(c, next.TTL)
}

func repeatChecks() []check {
	return []check{
		{name: "a repeated release changes nothing", run: repeatedRelease},
		{name: "a plain release leaves a minimum hold and a marker as they are", run: plainRelease},
		{name: "a release by another leaves a minimum hold and a marker as they are", run: strangersRelease},
	}
}

// kept returns claims that have ended, one with a minimum hold and one with a marker, both for long.
func (s *subject) kept() (hold, done guard.Claim) {
	hold, done = s.claim("hold"), s.claim("done")
	s.here.take(hold)
	s.here.take(done)
	s.here.give(hold, guard.After{Keep: long})
	s.here.give(done, guard.After{Keep: long, Done: true, Record: []byte("first")})
	return hold, done
}

// stillKept checks that what kept left is there.
func (s *subject) stillKept() {
	s.Helper()
	require.Greater(s, s.there.refused(s.claim("hold"), long).Left, long/2)
	g := s.there.finished(s.claim("done"), long)
	require.Greater(s, g.Left, long/2)
	require.Equal(s, "first", string(g.Record))
}

func repeatedRelease(s *subject) {
	hold, done := s.kept()
	for _, keep := range keeps {
		s.there.give(hold, guard.After{Keep: keep})
		s.there.give(hold, guard.After{Keep: keep, Done: true, Record: []byte("second")})
		s.there.give(done, guard.After{Keep: keep})
		s.there.give(done, guard.After{Keep: keep, Done: true, Record: []byte("second")})
		s.stillKept()
	}
}

// plainRelease is about clean-up: a Guard releases plainly, some time later, a claim of which one
// request had no answer. What is answered to that does not matter.
func plainRelease(s *subject) {
	hold, done := s.kept()
	for range 2 {
		s.there.release(hold, guard.After{})
		s.there.release(done, guard.After{})
		s.stillKept()
	}
}

func strangersRelease(s *subject) {
	hold, done := s.kept()
	for _, key := range []string{hold.Key, done.Key} {
		require.False(s, s.there.release(s.claim(key), guard.After{}))
		require.False(s, s.there.release(s.claim(key), guard.After{Keep: 2 * long}))
		require.False(s, s.there.release(s.claim(key), guard.After{Keep: 2 * long, Done: true, Record: []byte("forged")}))
	}
	s.stillKept()
}
