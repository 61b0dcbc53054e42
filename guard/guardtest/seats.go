package guardtest

import (
	"strconv"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// seatChecks returns the checks of claims that share a key in pairs: those of a quorum, and those
// that a quorum makes on its nodes.
func seatChecks() []check {
	pairs := func(b Backend) bool { return len(b.Shares) > 0 && (b.Seats || b.Pairs) }
	seats := func(b Backend) bool { return len(b.Shares) > 0 && b.Seats }
	limited := func(run func(s *subject, among int)) func(*subject) {
		return func(s *subject) {
			for _, among := range s.backend.Shares {
				if among <= driver.MaxSeats {
					run(s, among)
				}
			}
		}
	}
	return []check{
		{name: "a key is shared up to the smallest limit of those that go together", needs: pairs, run: limited(sharesInPairs)},
		{name: "claims with a limit and claims without one do not go together", needs: pairs, run: limited(excludesUnlimited)},
		{name: "a node grants the seat that a quorum asks for, or none", needs: seats, run: limited(grantsSeat)},
		{name: "a node grants no seat above the limit of another holder", needs: seats, run: limited(seatsFitLimits)},
		{name: "a repeated claim of a quorum keeps its seat", needs: seats, run: limited(keepsSeat)},
		{name: "a claim that has another seat is not renewed", needs: seats, run: limited(renewsSeat)},
	}
}

// ofNode returns a claim of the key that a quorum makes on a node.
func (s *subject) ofNode(key string, among, seat int) guard.Claim {
	c := s.shared(key, among)
	c.Seat = seat
	return c
}

// inPair returns a claim of the key that shares it in pairs.
func (s *subject) inPair(key string, among int) guard.Claim {
	if s.backend.Seats {
		return s.ofNode(key, among, driver.AnySeat)
	}
	return s.shared(key, among)
}

func sharesInPairs(s *subject, among int) {
	k := key("pairs", among)
	hold := func(p process, c guard.Claim, seat int) guard.Claim {
		g := p.mustAcquire(c)
		require.Equal(s, seat, g.Seat)
		c.Fence, c.Seat = g.Fence, g.Seat
		return c
	}
	holders := []guard.Claim{hold(s.here, s.inPair(k, among+1), 1)}
	for i := range among - 1 {
		holders = append(holders, hold(s.there, s.inPair(k, among), i+2))
	}
	s.requireFull(s.here, s.inPair(k, among), holders)
	s.requireFull(s.there, s.inPair(k, among+1), holders)
	s.here.mustRelease(holders[0], guard.After{})
	holders[0] = hold(s.there, s.inPair(k, among+1), 1)
	s.requireFull(s.here, s.inPair(k, among), holders)
	s.here.requireBusy(s.claim(k), long)
}

// requireFull makes a claim of a key whose seats these claims hold. It renews them first: a node of
// a quorum may have refused one of them because of a claim that had not left it yet. A renewal
// brings it there, and until then the key may look contested.
func (s *subject) requireFull(p process, c guard.Claim, holders []guard.Claim) {
	s.Helper()
	var g guard.Grant
	s.eventually(func() bool {
		for _, holder := range holders {
			require.True(s, p.renew(holder), "a renewal by the holder must return true")
		}
		var err error
		g, err = p.tryAcquire(c)
		require.NoError(s, err)
		return !g.Contested
	}, "the answer to a claim of a full key is not contested")
	require.Equal(s, guard.Busy, g.State, "the answer to a claim of a full key")
	p.requireLeft(g, long)
}

func excludesUnlimited(s *subject, among int) {
	if sharer, _ := driver.Ability[driver.Sharer](s.here.locker); sharer.CheckAmong(driver.Any) != nil {
		return
	}
	k := key("unlimited", among)
	limited := s.inPair(k, among)
	s.here.mustAcquire(limited)
	s.there.requireBusy(s.inPair(k, driver.Any), long)
	s.here.mustRelease(limited, guard.After{})
	readers := []guard.Claim{s.inPair(k, driver.Any), s.inPair(k, driver.Any)}
	for _, c := range readers {
		require.Zero(s, s.there.mustAcquire(c).Seat)
	}
	for _, c := range readers {
		s.here.requireBusy(s.inPair(k, among), long)
		s.there.mustRelease(c, guard.After{})
	}
	s.here.mustAcquire(s.inPair(k, among))
}

// seatsOf returns these seats as a set, as in Grant.Open.
func seatsOf(seats ...int) (set uint32) {
	for _, seat := range seats {
		set |= 1 << seat
	}
	return set
}

func grantsSeat(s *subject, among int) {
	k := key("wish", among)
	first := s.ofNode(k, among, among)
	g := s.here.mustAcquire(first)
	all := g.Open
	require.Equal(s, among, g.Seat)
	require.Equal(s, uint32(1<<(among+1)-2), all, "all seats were free")
	last, others := g.Fence, all&^seatsOf(among)
	g = s.there.requireBusy(s.ofNode(k, among, among), long)
	require.True(s, g.Shared)
	require.Equal(s, " "+first.ID[:7], g.Holder)
	require.Equal(s, others, g.Open, "the other seats are free")
	for seat := 1; seat < among; seat++ {
		c := s.ofNode(k, among, driver.AnySeat)
		g = s.there.mustAcquire(c)
		require.Equal(s, seat, g.Seat, "the smallest seat that is free")
		require.Equal(s, others, g.Open)
		others &^= seatsOf(seat)
		last = g.Fence
	}
	g = s.here.requireBusy(s.ofNode(k, among, driver.AnySeat), long)
	require.Zero(s, g.Open)
	require.Regexp(s, "^( [A-Z2-7]{7}){"+strconv.Itoa(among-1)+"} "+first.ID[:7]+"$", g.Holder, "all holders by seat")
	s.here.mustRelease(first, guard.After{})
	again := s.there.mustAcquire(s.ofNode(k, among, among))
	require.Greater(s, again.Fence, last)
	require.Zero(s, s.here.requireBusy(s.claim(k), long).Open)
}

func seatsFitLimits(s *subject, among int) {
	k := key("above", among)
	above := s.ofNode(k, among+1, among+1)
	s.here.mustAcquire(above)
	g := s.there.requireBusy(s.ofNode(k, among, driver.AnySeat), long)
	require.Zero(s, g.Open, "a seat above the limit of the claim is taken")
	s.here.mustRelease(above, guard.After{})
	s.here.mustAcquire(s.ofNode(k, among, 1))
	g = s.there.requireBusy(s.ofNode(k, among+1, among+1), long)
	require.Equal(s, uint32(1<<(among+1)-2)&^seatsOf(1), g.Open, "the seats up to the limit of the holder")
	kept := s.ofNode(k, among, 2)
	s.there.mustAcquire(kept)
	s.there.mustRelease(kept, guard.After{Keep: long})
	require.Zero(s, s.there.requireBusy(s.ofNode(k, among, 2), long).Open&seatsOf(2), "a minimum hold has the seat")
}

func keepsSeat(s *subject, among int) {
	k := key("kept seat", among)
	c := s.ofNode(k, among, driver.AnySeat)
	first := s.here.mustAcquire(c)
	for _, seat := range []int{2, driver.AnySeat, 1} {
		c.Seat = seat
		again := s.there.mustAcquire(c)
		require.True(s, again.Held)
		require.Equal(s, []uint64{first.Fence, uint64(first.Seat)}, []uint64{again.Fence, uint64(again.Seat)})
		require.Equal(s, first.Open, again.Open)
	}
}

func renewsSeat(s *subject, among int) {
	k := key("renewed seat", among)
	c := s.ofNode(k, among, 2)
	s.here.mustAcquire(c)
	require.True(s, s.there.renew(c))
	c.Seat = 1
	require.False(s, s.there.renew(c), "a claim that has another seat")
	c.Seat = 0
	require.True(s, s.there.renew(c))
	c.Seat = 1
	s.here.mustRelease(c, guard.After{})
	s.there.mustAcquire(s.claim(k))
}
