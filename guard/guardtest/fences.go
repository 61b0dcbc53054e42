package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func fenceChecks() []check {
	return []check{
		{name: "fences grow after a release", run: growAfterRelease},
		{name: "fences grow after an expiry", run: growAfterExpiry},
		{name: "fences grow after a minimum hold", run: growAfterHold},
		{name: "fences grow after a done marker", run: growAfterMarker},
		{name: "a claim that comes back late has a new fence", run: lateRepeat},
		{name: "fences that were set aside are not granted", run: passesReserve},
		{name: "a renewal raises the fence", run: raisesFence},
		{name: "a renewal does not lower the fence", run: neverLowers},
		{name: "fences grow across a flush", run: growAcrossFlush, needs: flushes},
	}
}

// ahead is further than a store's fences come by themselves while a check runs, also where they are
// made from a clock in microseconds. Fences have to stay exact in a Lua number, which is below 1<<53.
const ahead = 1 << 30

func growAfterRelease(s *subject) {
	var last uint64
	for i := range 20 {
		p := []process{s.here, s.there}[i%2]
		c := s.claim("key")
		fence := p.take(c).Fence
		require.Greater(s, fence, last)
		last = fence
		p.give(c, guard.After{})
	}
}

func growAfterExpiry(s *subject) {
	c := s.claim("key")
	c.TTL = s.short()
	first := s.here.take(c).Fence
	require.Greater(s, s.there.waitFor(s.claim("key"), guard.Busy, time.Time{}).Fence, first)
}

func growAfterHold(s *subject) {
	c := s.claim("key")
	first := s.here.take(c).Fence
	s.here.give(c, guard.After{Keep: s.short()})
	require.Greater(s, s.there.waitFor(s.claim("key"), guard.Busy, time.Time{}).Fence, first)
}

func growAfterMarker(s *subject) {
	c := s.claim("key")
	first := s.here.take(c).Fence
	s.here.give(c, guard.After{Keep: s.short(), Done: true, Record: []byte("record")})
	require.Greater(s, s.there.waitFor(s.claim("key"), guard.Done, time.Time{}).Fence, first)
}

func lateRepeat(s *subject) {
	late := s.claim("key")
	late.TTL = s.short()
	first := s.here.take(late).Fence
	next := s.claim("key")
	second := s.there.waitFor(next, guard.Busy, time.Time{}).Fence
	require.Greater(s, second, first)
	s.there.give(next, guard.After{})
	require.Greater(s, s.here.take(late).Fence, second, "the fence of a claim that is granted once more")
}

func passesReserve(s *subject) {
	c := s.claim("key")
	c.Reserve = ahead
	fence := s.here.take(c).Fence
	require.Equal(s, fence, s.here.take(c).Fence, "the fence of a repeated claim")
	s.here.give(c, guard.After{})
	require.Greater(s, s.there.take(s.claim("key")).Fence, fence+ahead)
}

func raisesFence(s *subject) {
	c := s.claim("key")
	raised := s.here.take(c).Fence + ahead
	c.Fence = raised
	require.True(s, s.here.renew(c))
	c.Fence = 0
	require.Equal(s, raised, s.there.take(c).Fence, "the fence of a repeated claim")
	require.True(s, s.here.renew(c))
	s.here.give(c, guard.After{})
	require.Greater(s, s.there.take(s.claim("key")).Fence, raised)
}

func neverLowers(s *subject) {
	c := s.claim("key")
	fence := s.here.take(c).Fence
	for _, lower := range []uint64{0, 1, fence - 1, fence} {
		c.Fence = lower
		require.True(s, s.here.renew(c))
		require.Equal(s, fence, s.there.take(c).Fence, "the fence of a repeated claim")
	}
	s.here.give(c, guard.After{})
	require.Greater(s, s.there.take(s.claim("key")).Fence, fence)
}

func growAcrossFlush(s *subject) {
	var last uint64
	for range 3 {
		for range 10 {
			c := s.claim("key")
			fence := s.here.take(c).Fence
			require.Greater(s, fence, last)
			last = fence
			s.here.give(c, guard.After{})
		}
		lost := s.claim("key")
		last = s.here.take(lost).Fence
		s.store.Flush(s)
		next := s.claim("key")
		fence := s.there.take(next).Fence
		require.Greater(s, fence, last, "the fence right after a flush")
		last = fence
		s.there.give(next, guard.After{})
	}
}
