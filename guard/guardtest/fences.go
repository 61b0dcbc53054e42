package guardtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func fenceChecks() []check {
	return []check{
		{name: "fences grow after a release", run: growAfterRelease},
		{name: "fences grow after an expiry", run: growAfterExpiry},
		{name: "fences grow after a minimum hold", run: growAfterHold},
		{name: "fences grow after a done marker", run: growAfterMarker},
		{name: "a claim that is repeated after its expiry gets a new fence", run: lateRepeat},
		{name: "reserved fences are granted to no other holder", run: passesReserve},
		{name: "a claim reserves no more fences than it asks for", run: reservesAsAsked},
		{name: "a repeated claim reserves no fences", run: repeatReservesNone},
		{name: "a renewal raises the fence", run: raisesFence},
		{name: "a renewal does not lower the fence", run: neverLowers},
		{name: "fences grow across a flush", run: growAcrossFlush, needs: flushes},
		{name: "reserved fences are below those after a flush", run: reserveAcrossFlush, needs: flushes},
	}
}

// ahead is larger than any growth of the fences while a check runs, even if they come from a clock
// in microseconds. Fences must stay below 1<<53, the limit of exact integers in Lua.
const ahead = 1 << 30

func growAfterRelease(s *subject) {
	var last uint64
	for i := range 20 {
		p := []process{s.here, s.there}[i%2]
		c := s.claim("key")
		fence := p.mustAcquire(c).Fence
		require.Greater(s, fence, last)
		last = fence
		p.mustRelease(c, driver.After{})
	}
}

func growAfterExpiry(s *subject) {
	c := s.claim("key")
	c.TTL = s.short()
	first := s.here.mustAcquire(c).Fence
	require.Greater(s, s.there.awaitGrant(s.claim("key"), driver.Busy, time.Time{}).Fence, first)
}

func growAfterHold(s *subject) {
	c := s.claim("key")
	first := s.here.mustAcquire(c).Fence
	s.here.mustRelease(c, driver.After{Keep: s.short()})
	require.Greater(s, s.there.awaitGrant(s.claim("key"), driver.Busy, time.Time{}).Fence, first)
}

func growAfterMarker(s *subject) {
	c := s.claim("key")
	first := s.here.mustAcquire(c).Fence
	s.here.mustRelease(c, driver.After{Keep: s.short(), Done: true, Record: []byte("record")})
	require.Greater(s, s.there.awaitGrant(s.claim("key"), driver.Done, time.Time{}).Fence, first)
}

func lateRepeat(s *subject) {
	late := s.claim("key")
	late.TTL = s.short()
	first := s.here.mustAcquire(late).Fence
	next := s.claim("key")
	second := s.there.awaitGrant(next, driver.Busy, time.Time{}).Fence
	require.Greater(s, second, first)
	s.there.mustRelease(next, driver.After{})
	late.TTL = next.TTL // it need not end soon again
	require.Greater(s, s.here.mustAcquire(late).Fence, second, "the new fence of a claim that is granted again after its expiry")
}

// catchUp is how long after losing its counter a store may reserve no fences: until its clock has
// caught up with its fences.
const catchUp = 500 * time.Millisecond

// reserving acquires "key" with reserved fences, and returns the claim and the grant. A store need
// not reserve any fences, so after a while it returns a grant without them.
func (s *subject) reserving(reserve int) (driver.Claim, driver.Answer) {
	for start := time.Now(); ; time.Sleep(pollStep) {
		c := s.claim("key")
		c.Fences.Reserve = reserve
		g := s.here.mustAcquire(c)
		if g.Reserved > 0 || time.Since(start) > catchUp {
			return c, g
		}
		s.here.mustRelease(c, driver.After{})
	}
}

// lastOf returns the last fence that belongs to the holder.
func lastOf(g driver.Answer) uint64 { return g.Fence + uint64(g.Reserved) }

func passesReserve(s *subject) {
	for _, reserve := range []int{1, 64, ahead} {
		c, g := s.reserving(reserve)
		s.here.mustRelease(c, driver.After{})
		next := s.claim("key")
		require.Greater(s, s.there.mustAcquire(next).Fence, lastOf(g), "%d fences were requested, %d were reserved", reserve, g.Reserved)
		s.there.mustRelease(next, driver.After{})
	}
}

func reservesAsAsked(s *subject) {
	c, _ := s.reserving(1)
	s.here.mustRelease(c, driver.After{})
	var last uint64
	for _, reserve := range []int{0, 1, 10, 0, 4096, ahead, 0, -1} {
		c := s.claim("key")
		c.Fences.Reserve = reserve
		g := s.here.mustAcquire(c)
		require.Greater(s, g.Fence, last)
		require.GreaterOrEqual(s, g.Reserved, 0)
		require.LessOrEqual(s, g.Reserved, max(reserve, 0), "%d fences were requested", reserve)
		last = lastOf(g)
		s.here.mustRelease(c, driver.After{})
	}
}

func repeatReservesNone(s *subject) {
	c, g := s.reserving(10)
	again := s.there.mustAcquire(c)
	require.Equal(s, g.Fence, again.Fence, "a repeated claim must have the same fence")
	require.Zero(s, again.Reserved)
}

// reserveAcrossFlush makes a store forget everything right after it has reserved fences. The
// holder of these fences may not know that yet and may go on to hand them off.
func reserveAcrossFlush(s *subject) {
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		_, g := s.reserving(ahead)
		for range 20 { // in quick succession
			last := lastOf(g)
			s.backend.Flush(s)
			c := s.claim("key")
			c.Fences.Reserve = ahead
			g = s.there.mustAcquire(c)
			require.Greater(s, g.Fence, last, "the fence right after a flush must be higher")
		}
		s.backend.Flush(s)
	}
}

func raisesFence(s *subject) {
	c := s.claim("key")
	raised := s.here.mustAcquire(c).Fence + ahead
	c.Fence, c.Fences.Reserve = raised, ahead
	require.True(s, s.here.renew(c))
	c.Fence, c.Fences.Reserve = 0, 0
	require.Equal(s, raised, s.there.mustAcquire(c).Fence, "a repeated claim must have the same fence")
	require.True(s, s.here.renew(c))
	s.here.mustRelease(c, driver.After{})
	require.Greater(s, s.there.mustAcquire(s.claim("key")).Fence, raised+ahead)
}

func neverLowers(s *subject) {
	c := s.claim("key")
	fence := s.here.mustAcquire(c).Fence
	for _, lower := range []uint64{0, 1, fence - 1, fence} {
		c.Fence = lower
		require.True(s, s.here.renew(c))
		require.Equal(s, fence, s.there.mustAcquire(c).Fence, "a repeated claim must have the same fence")
	}
	s.here.mustRelease(c, driver.After{})
	require.Greater(s, s.there.mustAcquire(s.claim("key")).Fence, fence)
}

func growAcrossFlush(s *subject) {
	var last uint64
	for range 3 {
		for range 10 {
			c := s.claim("key")
			fence := s.here.mustAcquire(c).Fence
			require.Greater(s, fence, last)
			last = fence
			s.here.mustRelease(c, driver.After{})
		}
		lost := s.claim("key")
		last = s.here.mustAcquire(lost).Fence
		s.backend.Flush(s)
		next := s.claim("key")
		fence := s.there.mustAcquire(next).Fence
		require.Greater(s, fence, last, "the fence right after a flush must be higher")
		last = fence
		s.there.mustRelease(next, driver.After{})
	}
}
