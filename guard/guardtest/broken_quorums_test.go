package guardtest_test

import (
	"github.com/seed-1795987d/onerun/guard/driver"
)

// brokenQuorums returns backends that do not work as nodes of a quorum.
func brokenQuorums() []broken {
	return []broken{
		{"a claim that holds the key on other nodes gets a new fence", wrapped(mapping(func(c *driver.Claim) { c.Fence = 0 })), []string{
			"a claim that holds the key on other nodes keeps its fence",
		}},
		{"a claim that holds the key on other nodes reserves nothing", wrapped(mapping(func(c *driver.Claim) {
			if c.Fence != 0 {
				c.Fences.Reserve = 0
			}
		})), []string{"a claim that holds the key on other nodes keeps its fence"}},
		{"every hint is granted", wrapped(mapping(func(c *driver.Claim) {
			if c.Fence == 0 {
				c.Fence = c.Fences.Hint
			}
		})), []string{"a hint does not change the order of fences"}},
		{"the holder of a busy key is always the same", answering(func(_ driver.Claim, g *driver.Answer) { g.Holder = "somebody" }), []string{
			"a busy key's answer distinguishes its holders",
		}},
		{"every refusal is contested", answering(func(_ driver.Claim, g *driver.Answer) { g.Reason = driver.Undecided }), []string{"a held key is not reported as contested"}},
	}
}
