package guardtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// quorumChecks returns the checks of what a store must do as a node of a quorum.
func quorumChecks() []check {
	return []check{
		{name: "a claim that holds the key on other nodes keeps its fence", run: takesUnderFence},
		{name: "a hint does not change the order of fences", run: hintKeepsOrder},
		{name: "a busy key's answer distinguishes its holders", run: distinguishesHolders},
		{name: "a held key is not reported as contested", run: notContested},
	}
}

func takesUnderFence(s *subject) {
	first := s.claim("key")
	old := s.here.mustAcquire(first).Fence
	s.here.mustRelease(first, driver.After{})
	// One fence is lower than later fences on this node, the other is higher.
	for _, fence := range []uint64{old, old + ahead} {
		c := s.claim("key")
		c.Fence, c.Fences.Reserve = fence, ahead
		g := s.here.mustAcquire(c)
		require.Equal(s, fence, g.Fence)
		require.Equal(s, ahead, g.Reserved, "the fences that the claim has reserved on other nodes")
		require.Equal(s, fence, s.there.mustAcquire(c).Fence, "a repeated claim must have the same fence")
		unrelated := s.claim("key")
		unrelated.Fence = fence + ahead
		s.there.requireBusy(unrelated, long)
		s.here.mustRelease(c, driver.After{})
		next := s.claim("key")
		require.Greater(s, s.there.mustAcquire(next).Fence, max(lastOf(g), old))
		s.there.mustRelease(next, driver.After{})
	}
}

func hintKeepsOrder(s *subject) {
	var last uint64
	hint := uint64(1)
	for i := range 12 {
		c := s.claim("key")
		c.Fences.Hint = hint
		g := s.here.mustAcquire(c)
		require.Greater(s, g.Fence, last, "with the hint %d", hint)
		if g.Clock != 0 {
			require.Less(s, g.Clock, g.Fence+ahead)
		}
		repeated := s.there.mustAcquire(c)
		require.Equal(s, g.Fence, repeated.Fence, "a repeated claim must have the same fence")
		s.here.mustRelease(c, driver.After{})
		if s.backend.Flush != nil && i%4 == 3 {
			s.backend.Flush(s)
		}
		last = g.Fence
		hint = []uint64{last, last + 1, last + 20, last + ahead, last - 1, 1}[i%6]
	}
	next := s.claim("key")
	require.Less(s, s.here.mustAcquire(next).Fence, last+ahead, "a hint far ahead of the store's clock must not be granted")
}

func distinguishesHolders(s *subject) {
	one, two := s.claim("key"), s.claim("key")
	s.here.mustAcquire(one)
	first := s.there.requireBusy(s.claim("key"), long).Holder
	require.Equal(s, first, s.there.requireBusy(s.claim("key"), long).Holder)
	s.here.mustRelease(one, driver.After{Keep: s.short()})
	s.there.awaitGrant(two, driver.Busy, time.Time{})
	if second := s.here.requireBusy(s.claim("key"), long).Holder; first != "" || second != "" {
		require.NotEqual(s, first, second)
	}
}

func notContested(s *subject) {
	s.here.mustAcquire(s.claim("key"))
	ctx, cancel := s.there.context()
	defer cancel()
	g, err := s.there.locker.TryAcquire(ctx, s.claim("key"))
	require.NoError(s, err)
	require.False(s, g.Reason.IsUndecided())
}
