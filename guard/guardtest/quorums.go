package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// quorumChecks are about what a store has to do as one of the nodes of a quorum.
func quorumChecks() []check {
	return []check{
		{name: "a claim that holds the key elsewhere takes it under its fence", run: takesUnderFence},
		{name: "a hint changes no order of fences", run: hintKeepsOrder},
		{name: "a busy key tells its holders apart", run: tellsHolders},
		{name: "a store does not take the claims it refuses for contested", run: notContested},
	}
}

func takesUnderFence(s *subject) {
	first := s.claim("key")
	old := s.here.take(first).Fence
	s.here.give(first, guard.After{})
	for _, fence := range []uint64{old, old + ahead} { // one that has been passed by others here, and one that has not
		c := s.claim("key")
		c.Fence = fence
		require.Equal(s, fence, s.here.take(c).Fence)
		require.Equal(s, fence, s.there.take(c).Fence, "the fence of a repeated claim")
		stranger := s.claim("key")
		stranger.Fence = fence + ahead
		s.there.refused(stranger, long)
		s.here.give(c, guard.After{})
		next := s.claim("key")
		require.Greater(s, s.there.take(next).Fence, max(fence, old))
		s.there.give(next, guard.After{})
	}
}

func hintKeepsOrder(s *subject) {
	var last uint64
	hint := uint64(1)
	for i := range 12 {
		c := s.claim("key")
		c.Hint = hint
		g := s.here.take(c)
		require.Greater(s, g.Fence, last, "with the hint %d", hint)
		if g.Clock != 0 {
			require.Less(s, g.Clock, g.Fence+ahead)
		}
		repeated := s.there.take(c)
		require.Equal(s, g.Fence, repeated.Fence, "the fence of a repeated claim")
		s.here.give(c, guard.After{})
		if s.store.Flush != nil && i%4 == 3 {
			s.store.Flush(s)
		}
		last = g.Fence
		hint = []uint64{last, last + 1, last + 20, last + ahead, last - 1, 1}[i%6]
	}
	next := s.claim("key")
	require.Less(s, s.here.take(next).Fence, last+ahead, "a hint ahead of the store's clock was granted")
}

func tellsHolders(s *subject) {
	one, two := s.claim("key"), s.claim("key")
	s.here.take(one)
	first := s.there.refused(s.claim("key"), long).Holder
	require.Equal(s, first, s.there.refused(s.claim("key"), long).Holder)
	s.here.give(one, guard.After{Keep: s.short()})
	s.there.waitFor(two, guard.Busy, time.Time{})
	if second := s.here.refused(s.claim("key"), long).Holder; first != "" || second != "" {
		require.NotEqual(s, first, second)
	}
}

func notContested(s *subject) {
	s.here.take(s.claim("key"))
	ctx, cancel := s.there.context()
	defer cancel()
	g, err := s.there.locker.TryAcquire(ctx, s.claim("key"))
	require.NoError(s, err)
	require.False(s, g.Contested)
}
