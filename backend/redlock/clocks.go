package redlock

import (
	"slices"
	"sync"
	"time"
)

// clocks estimates the nodes' clocks, so that a claim can carry a fence that suits all nodes. A
// wrong estimate costs a round trip and nothing else: a node grants a hint only if it is certainly
// larger than all fences before. Estimates come from the nodes' own clocks and the time that has
// passed here. No clock of this machine reaches a node.
type clocks struct {
	epoch time.Time

	mu sync.Mutex
	// at least how far a node's clock is ahead of the time since the epoch
	ahead []time.Duration
}

// maxLag is how far a clock may be behind the others so that the hint still waits for it.
const maxLag = 5 * time.Millisecond

// noHint is a hint that suits no node, so that the node answers with its clock.
const noHint = 1

func newClocks(nodes int) *clocks {
	return &clocks{epoch: time.Now(), ahead: make([]time.Duration, nodes)}
}

func (c *clocks) now() time.Duration { return time.Since(c.epoch) }

// observe records a node's clock, as a fence, which was read between sent and now.
func (c *clocks) observe(node int, clock uint64, sent time.Time) {
	if clock == 0 {
		return
	}
	said := sinceUnix(clock)
	least, most := said-c.now(), said-sent.Sub(c.epoch)
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.ahead[node]; was == 0 || was > most || was < least {
		c.ahead[node] = least
	}
}

// hint returns a fence that a quorum of the nodes would grant, if the estimate is right.
func (c *clocks) hint(quorum int) uint64 {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var room [5]time.Duration
	known := slices.DeleteFunc(append(room[:0], c.ahead...), func(ahead time.Duration) bool { return ahead == 0 })
	if len(known) < quorum {
		return noHint
	}
	slices.Sort(known)
	guess := known[len(known)-quorum] // as many are not behind it
	guess = known[slices.IndexFunc(known, func(ahead time.Duration) bool { return guess-ahead <= maxLag })]
	return fenceAt(guess + now)
}

// Clocks as fences are the seconds since 1970, shifted left by 20 bits, and microseconds: see
// driver.Answer.

func sinceUnix(clock uint64) time.Duration {
	return time.Duration(clock>>20)*time.Second + time.Duration(clock&(1<<20-1))*time.Microsecond
}

func fenceAt(since time.Duration) uint64 {
	return uint64(since/time.Second)<<20 + uint64(since%time.Second/time.Microsecond)
}
