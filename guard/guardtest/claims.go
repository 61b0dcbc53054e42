package guardtest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func claimChecks() []check {
	return []check{
		{name: "a free key is granted", run: grantsFree},
		{name: "a busy key says how long and by whom", run: refusesBusy},
		{name: "a repeated claim is granted with the same fence", run: grantsRepeat},
		{name: "a repeated claim lasts for its TTL from then on", run: repeatStartsTTL},
		{name: "a repeated claim counts once", run: repeatCountsOnce},
		{name: "of many claims at once one is granted", run: grantsOneOfMany},
		{name: "the settings are sound", run: settingsAreSound},
	}
}

func grantsFree(s *subject) {
	g := s.here.take(s.claim("key"))
	require.Positive(s, g.Fence)
	require.Zero(s, g.Left, "what is left, in a grant")
	require.Empty(s, g.Record, "the record in a grant")
	require.Empty(s, g.Label, "the label in a grant")
}

func refusesBusy(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	for _, p := range []process{s.here, s.there} {
		g := p.refused(s.claim("key"), c.TTL)
		require.Equal(s, c.Label, g.Label)
		require.Empty(s, g.Record, "the record of a key that is busy")
	}
}

func grantsRepeat(s *subject) {
	c := s.claim("key")
	first := s.here.take(c)
	require.False(s, first.Held, "the answer to a first claim")
	for range 3 { // the reply was lost, and the same claim comes over another connection
		again := s.there.take(c)
		require.True(s, again.Held, "the answer to a repeated claim says that it held the key")
		require.Equal(s, first.Fence, again.Fence)
	}
	s.there.refused(s.claim("key"), c.TTL)
}

func repeatStartsTTL(s *subject) {
	c := s.claim("key")
	c.TTL = long / 2
	s.here.take(c)
	c.TTL = long
	s.here.take(c)
	require.Greater(s, s.there.refused(s.claim("key"), c.TTL).Left, long/2)
}

func repeatCountsOnce(s *subject) {
	c := s.claim("key")
	for range 3 {
		s.here.take(c)
	}
	s.here.give(c, guard.After{})
	s.there.take(s.claim("key"))
}

func grantsOneOfMany(s *subject) {
	const claimants = 32
	claims := make([]guard.Claim, claimants)
	for i := range claims {
		claims[i] = s.claim("key")
	}
	granted := func() (winners []guard.Claim) {
		grants := make([]guard.Grant, claimants)
		errs := make([]error, claimants)
		var all sync.WaitGroup
		for i, c := range claims {
			p := []process{s.here, s.there}[i%2]
			all.Go(func() {
				ctx, cancel := p.context()
				defer cancel()
				grants[i], errs[i] = p.locker.TryAcquire(ctx, c)
			})
		}
		all.Wait()
		for i, g := range grants {
			require.NoError(s, errs[i])
			if g.State == guard.Granted {
				winners = append(winners, claims[i])
			}
		}
		require.LessOrEqual(s, len(winners), 1, "more than one claim was granted")
		return winners
	}
	// A quorum may split so that nobody wins, so this asks again.
	var winners []guard.Claim
	s.eventually(func() bool { winners = granted(); return len(winners) == 1 }, "one of many claims is granted")
	require.True(s, s.here.renew(winners[0]), "the claim that was granted is not held")
	s.there.refused(s.claim("key"), long)
}

func settingsAreSound(s *subject) {
	if c, ok := guard.Ability[guard.Checker](s.here.locker); ok {
		require.NoError(s, c.Check())
	}
}

// fewTries is how often a check looks for what a slow machine may miss.
const fewTries = 100

func expiryChecks() []check {
	return []check{
		{name: "a claim that has expired makes way", run: expires},
		{name: "an expired claim is not renewed or released", run: expiredIsGone},
		{name: "a TTL of a fraction of a millisecond is not nothing", run: fractionOfTTL},
		{name: "a renewal of a fraction of a millisecond is not nothing", run: fractionOfRenewal},
		{name: "a TTL of ten years is kept", run: tenYears},
	}
}

func expires(s *subject) {
	c := s.claim("key")
	c.TTL = s.short()
	sent := time.Now()
	s.here.take(c)
	next := s.claim("key")
	s.there.waitFor(next, guard.Busy, sent.Add(c.TTL))

	require.False(s, s.here.renew(c), "a renewal after another was granted")
	require.False(s, s.here.release(c, guard.After{}), "a release after another was granted")
	require.False(s, s.here.release(c, guard.After{Keep: 2 * long, Done: true}), "a release after another was granted")
	s.here.refused(c, next.TTL)
	require.True(s, s.there.renew(next), "the second holder lost the key to the first")
}

func expiredIsGone(s *subject) {
	renewed, released := s.claim("renewed"), s.claim("released")
	renewed.TTL, released.TTL = s.short(), s.short()
	s.here.take(renewed)
	s.here.take(released)
	s.outlive(s.short())

	renewed.TTL = long
	require.False(s, s.here.renew(renewed), "a renewal after the TTL")
	require.False(s, s.here.release(released, guard.After{Keep: long}), "a release after the TTL")
	s.there.take(s.claim("renewed"))
	s.there.take(s.claim("released"))
}

// seenBusy reports whether the key was found busy right after take, in one of a few tries: what
// lasts less than a millisecond may be over before anybody asks.
func (s *subject) seenBusy(take func(c guard.Claim)) bool {
	for range fewTries {
		c := s.claim("key")
		take(c)
		rival := s.claim("key")
		if s.there.acquire(rival).State == guard.Busy {
			return true
		}
		s.there.give(rival, guard.After{})
	}
	return false
}

// fraction is the shortest time that a lease may last, and a fraction of a millisecond.
func (s *subject) fraction() time.Duration { return s.store.MinTTL + 300*time.Microsecond }

func fractionOfTTL(s *subject) {
	busy := s.seenBusy(func(c guard.Claim) {
		c.TTL = s.fraction()
		s.here.take(c)
	})
	require.True(s, busy, "a lease of %v was never seen by another", s.fraction())
}

func fractionOfRenewal(s *subject) {
	busy := s.seenBusy(func(c guard.Claim) {
		s.here.take(c)
		c.TTL = s.fraction()
		require.True(s, s.here.renew(c))
	})
	require.True(s, busy, "a lease renewed for %v was never seen by another", s.fraction())
	s.there.waitFor(s.claim("key"), guard.Busy, time.Time{})
}

func tenYears(s *subject) {
	const decade = 10 * 365 * 24 * time.Hour
	c := s.claim("key")
	c.TTL = decade
	s.here.take(c)
	require.Greater(s, s.there.refused(s.claim("key"), decade).Left, decade-time.Hour)
	require.True(s, s.here.renew(c))
	require.Greater(s, s.there.refused(s.claim("key"), decade).Left, decade-time.Hour)
	s.here.give(c, guard.After{Keep: decade, Done: true})
	require.Greater(s, s.there.finished(s.claim("key"), decade).Left, decade-time.Hour)
}
