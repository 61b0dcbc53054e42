package guardtest_test

import (
	"github.com/seed-1795987d/onerun/guard"
)

// brokenQuorums are Lockers that are no good as nodes of a quorum.
func brokenQuorums() []broken {
	return []broken{
		{
			name:     "a claim that holds the key elsewhere has a new fence",
			store:    wrapped(func(l guard.Locker) guard.Locker { return mapped(l, func(c *guard.Claim) { c.Fence = 0 }) }),
			caughtBy: []string{"a claim that holds the key elsewhere takes it under its fence"},
		},
		{
			name: "every hint is granted",
			store: wrapped(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *guard.Claim) {
					if c.Fence == 0 {
						c.Fence = c.Hint
					}
				})
			}),
			caughtBy: []string{"a hint changes no order of fences"},
		},
		{
			name:     "a busy key has always the same holder",
			store:    answering(func(_ guard.Claim, g *guard.Grant) { g.Holder = "somebody" }),
			caughtBy: []string{"a busy key tells its holders apart"},
		},
		{
			name:     "every refusal is contested",
			store:    answering(func(_ guard.Claim, g *guard.Grant) { g.Contested = true }),
			caughtBy: []string{"a store does not take the claims it refuses for contested"},
		},
	}
}
