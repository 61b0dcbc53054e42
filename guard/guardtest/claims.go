package guardtest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func claimChecks() []check {
	return []check{
		{name: "a free key is granted", run: grantsFree},
		{name: "a busy key's answer names the holder and the time left", run: refusesBusy},
		{name: "a repeated claim is granted with the same fence", run: grantsRepeat},
		{name: "a repeated claim restarts its TTL", run: repeatStartsTTL},
		{name: "a repeated claim counts once", run: repeatCountsOnce},
		{name: "one of many concurrent claims is granted", run: grantsOneOfMany},
		{name: "the settings are valid", run: settingsAreSound},
	}
}

func grantsFree(s *subject) {
	g := s.here.mustAcquire(s.claim("key"))
	require.Positive(s, g.Fence)
	require.Zero(s, g.Left, "Left of a grant must be zero")
	require.Empty(s, g.Record, "Record of a grant must be empty")
	require.Empty(s, g.Label, "Label of a grant must be empty")
}

func refusesBusy(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	for _, p := range []process{s.here, s.there} {
		g := p.requireBusy(s.claim("key"), c.TTL)
		require.Equal(s, c.Label, g.Label)
		require.Empty(s, g.Record, "Record must be empty if the key is busy")
	}
}

func grantsRepeat(s *subject) {
	c := s.claim("key")
	first := s.here.mustAcquire(c)
	require.False(s, first.Held, "Held must be false in the answer to a first claim")
	for range 3 { // as if replies had been lost, over another connection
		again := s.there.mustAcquire(c)
		require.True(s, again.Held, "Held must be true in the answer to a repeated claim")
		require.Equal(s, first.Fence, again.Fence)
	}
	s.there.requireBusy(s.claim("key"), c.TTL)
}

func repeatStartsTTL(s *subject) {
	c := s.claim("key")
	c.TTL = long / 2
	s.here.mustAcquire(c)
	c.TTL = long
	s.here.mustAcquire(c)
	require.Greater(s, s.there.requireBusy(s.claim("key"), c.TTL).Left, long/2)
}

func repeatCountsOnce(s *subject) {
	c := s.claim("key")
	for range 3 {
		s.here.mustAcquire(c)
	}
	s.here.mustRelease(c, driver.After{})
	s.there.mustAcquire(s.claim("key"))
}

func grantsOneOfMany(s *subject) {
	const claimants = 32
	claims := make([]driver.Claim, claimants)
	for i := range claims {
		claims[i] = s.claim("key")
	}
	granted := func() (winners []driver.Claim) {
		grants := make([]driver.Answer, claimants)
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
			if g.State == driver.Granted {
				winners = append(winners, claims[i])
			}
		}
		require.LessOrEqual(s, len(winners), 1, "more than one claim was granted")
		return winners
	}
	// A quorum may split so that no claim wins. Then all claims ask again.
	var winners []driver.Claim
	s.eventually(func() bool { winners = granted(); return len(winners) == 1 }, "one of many concurrent claims is granted")
	require.True(s, s.here.renew(winners[0]), "the granted claim must be held")
	s.there.requireBusy(s.claim("key"), long)
}

func settingsAreSound(s *subject) {
	require.NoError(s, driver.Describe(s.here.locker).Err)
}

// fewTries is how often a check tries to observe a lease that may be over too soon on a slow
// machine.
const fewTries = 100

func expiryChecks() []check {
	return []check{
		{name: "an expired claim makes way for another", run: expires},
		{name: "an expired claim is not renewed or released", run: expiredIsGone},
		{name: "a TTL of a fraction of a millisecond is not rounded to zero", run: fractionOfTTL},
		{name: "a renewal for a fraction of a millisecond is not rounded to zero", run: fractionOfRenewal},
		{name: "a TTL of ten years is kept", run: tenYears},
	}
}

func expires(s *subject) {
	c := s.claim("key")
	c.TTL = s.short()
	sent := time.Now()
	s.here.mustAcquire(c)
	next := s.claim("key")
	s.there.awaitGrant(next, driver.Busy, sent.Add(c.TTL))

	require.False(s, s.here.renew(c), "a renewal must return false after another claim was granted the key")
	require.False(s, s.here.release(c, driver.After{}), "a release must return false after another claim was granted the key")
	require.False(s, s.here.release(c, driver.After{Keep: 2 * long, Done: true}), "a release must return false after another claim was granted the key")
	s.here.requireBusy(c, next.TTL)
	require.True(s, s.there.renew(next), "the second holder must still hold the key")
}

func expiredIsGone(s *subject) {
	renewed, released := s.claim("renewed"), s.claim("released")
	renewed.TTL, released.TTL = s.short(), s.short()
	s.here.mustAcquire(renewed)
	s.here.mustAcquire(released)
	s.outlive(s.short())

	renewed.TTL = long
	require.False(s, s.here.renew(renewed), "a renewal must return false after the TTL has passed")
	require.False(s, s.here.release(released, driver.After{Keep: long}), "a release must return false after the TTL has passed")
	s.there.mustAcquire(s.claim("renewed"))
	s.there.mustAcquire(s.claim("released"))
}

// seenBusy reports whether a rival ever found the key busy for no longer than s.fraction, in one of
// a few tries. A slow machine has more tries: as many as it takes to find the key busy as often if
// it is kept for a millisecond more. shorten makes d the time for which c keeps the key.
func (s *subject) seenBusy(hold func(c driver.Claim), shorten func(c driver.Claim, d time.Duration)) bool {
	longer := 0
	for try := 0; try < fewTries || longer < fewTries && try < 20*fewTries; try++ {
		if s.findsBusy(try, hold, shorten, s.fraction()) {
			return true
		}
		if s.findsBusy(try, hold, shorten, s.fraction()+time.Millisecond) {
			longer++
			next := s.claim("key") // the next try begins with a free key
			s.there.awaitGrant(next, driver.Busy, time.Time{})
			s.there.mustRelease(next, driver.After{})
		}
	}
	return false
}

// findsBusy reports whether a rival finds the key busy for no longer than d. In turn, the rival
// asks afterwards and at the same time: on a slow machine, one may be too late each time, and the
// other too soon. If it asks too soon, or if a call fails, the try says nothing.
func (s *subject) findsBusy(try int, hold func(c driver.Claim), shorten func(c driver.Claim, d time.Duration), d time.Duration) bool {
	c, rival := s.claim("key"), s.claim("key")
	hold(c)
	var answer driver.Answer
	ask := func() { answer, _ = s.there.tryAcquire(rival) }
	if try%2 == 0 {
		shorten(c, d)
		ask()
	} else {
		var asking sync.WaitGroup
		asking.Go(ask)
		shorten(c, d)
		asking.Wait()
	}
	if answer.State == driver.Busy && answer.Left <= d+time.Millisecond {
		return true
	}
	_, _ = s.there.tryRelease(rival, driver.After{})
	s.there.settled(s)
	return false
}

// fraction is a lease duration that is not a whole number of milliseconds: MinTTL plus 300 µs.
func (s *subject) fraction() time.Duration { return s.backend.MinTTL + 300*time.Microsecond }

// hold acquires the key for long, once an earlier claim has left it.
func (s *subject) hold(c driver.Claim) { s.here.awaitGrant(c, driver.Busy, time.Time{}) }

func fractionOfTTL(s *subject) {
	busy := s.seenBusy(func(driver.Claim) {}, func(c driver.Claim, d time.Duration) {
		c.TTL = d
		if _, err := s.here.tryAcquire(c); err != nil {
			s.Log(err) // a slow backend may take longer than so short a TTL
		}
	})
	require.True(s, busy, "no other claim ever found a lease of %v busy", s.fraction())
}

func fractionOfRenewal(s *subject) {
	busy := s.seenBusy(s.hold, func(c driver.Claim, d time.Duration) {
		c.TTL = d
		require.True(s, s.here.renew(c))
	})
	require.True(s, busy, "no other claim ever found a lease renewed for %v busy", s.fraction())
	s.there.awaitGrant(s.claim("key"), driver.Busy, time.Time{})
}

func tenYears(s *subject) {
	const decade = 10 * 365 * 24 * time.Hour
	c := s.claim("key")
	c.TTL = decade
	s.here.mustAcquire(c)
	require.Greater(s, s.there.requireBusy(s.claim("key"), decade).Left, decade-time.Hour)
	require.True(s, s.here.renew(c))
	require.Greater(s, s.there.requireBusy(s.claim("key"), decade).Left, decade-time.Hour)
	s.here.mustRelease(c, driver.After{Keep: decade, Done: true})
	require.Greater(s, s.there.requireDone(s.claim("key"), decade).Left, decade-time.Hour)
}
