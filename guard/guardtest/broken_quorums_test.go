package guardtest_test

import (
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// brokenQuorums returns backends that do not work as nodes of a quorum.
func brokenQuorums() []broken {
	return []broken{
		{
			name:     "a claim that holds the key on other nodes gets a new fence",
			backend:  wrapped(func(l guard.Locker) guard.Locker { return mapped(l, func(c *driver.Claim) { c.Fence = 0 }) }),
			caughtBy: []string{"a claim that holds the key on other nodes keeps its fence"},
		},
		{
			name: "a claim that holds the key on other nodes reserves nothing",
			backend: wrapped(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *driver.Claim) {
					if c.Fence != 0 {
						c.Fences.Reserve = 0
					}
				})
			}),
			caughtBy: []string{"a claim that holds the key on other nodes keeps its fence"},
		},
		{
			name: "every hint is granted",
			backend: wrapped(func(l guard.Locker) guard.Locker {
				return mapped(l, func(c *driver.Claim) {
					if c.Fence == 0 {
						c.Fence = c.Fences.Hint
					}
				})
			}),
			caughtBy: []string{"a hint does not change the order of fences"},
		},
		{
			name:     "the holder of a busy key is always the same",
			backend:  answering(func(_ driver.Claim, g *driver.Answer) { g.Holder = "somebody" }),
			caughtBy: []string{"a busy key's answer distinguishes its holders"},
		},
		{
			name:     "every refusal is contested",
			backend:  answering(func(_ driver.Claim, g *driver.Answer) { g.Reason = driver.Undecided }),
			caughtBy: []string{"a held key is not reported as contested"},
		},
	}
}
