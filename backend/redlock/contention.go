package redlock

import (
	"context"
	cryptorand "crypto/rand"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// This file is about keys that several processes want at the same time. If all of them ask all
// nodes at once, the nodes split their votes, and nobody is granted the key.
//
// So each process estimates how many others want the key. It asks at a random instant of a window
// that has room for all of them: after a release, and when it begins to want the key. Mostly one
// asks first, and the others find the key held. As in Ethernet's backoff, the estimate doubles when
// claims collide, grows by one when the claim comes too late, and shrinks with each grant.
//
// And a ballot for such a key asks one node first, which is the same in all processes. The claim
// that this node grants asks the others. Each other claim has cost one call.

const (
	// maxRivals bounds the estimate for a key, and maxContested the keys with an estimate.
	maxRivals    = 64
	maxContested = 256
	// fullWindows is how many releases a process lets pass before it asks in half of the window,
	// and then in a third, and so on: its estimate may be too high, or its luck bad.
	fullWindows = 16
	// probedBallots is for how many ballots the first node is asked first after a collision.
	probedBallots = 64
)

// contention is what a process knows of the keys that several processes want.
type contention struct {
	first *node // that is asked first

	mu      sync.Mutex
	rng     *rand.Rand
	trip    time.Duration // that a claim takes
	waiters map[string]int
	of      map[string]*contested
}

// contested is a key for which claims have collided.
type contested struct {
	rivals   int
	releases int    // since the last grant
	paused   bool   // the last claim was told to wait for a part of the window
	ballots  int    // that are to ask the first node first
	holder   string // that the first node has named last
}

// newContention returns no keys. The first node is the one with the least address, because
// processes may name their nodes in different orders.
func newContention(nodes []*node) *contention {
	var seed [32]byte // a test may fix crypto/rand
	_, _ = cryptorand.Read(seed[:])
	return &contention{
		first: slices.MinFunc(nodes, func(a, b *node) int { return strings.Compare(a.addr, b.addr) }),
		rng:   rand.New(rand.NewChaCha8(seed)), waiters: map[string]int{}, of: map[string]*contested{},
	}
}

// pause returns a part of the window of the key. c.mu must be held.
func (c *contention) pause(of *contested) time.Duration {
	window := time.Duration(of.rivals) * c.trip / time.Duration(1+of.releases/fullWindows)
	return c.upTo(window)
}

// upTo returns a random duration. c.mu must be held.
func (c *contention) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(most) + 1))
}

// begin says how to make a claim: not yet, but after a pause, or by asking the first node alone.
// What one node says is enough for a claim that will be made again. Claims that share a key, or an
// owner, may be granted a key that others hold. And all nodes may know a repeated claim: those that
// keep others away for it must learn how it ends.
func (c *contention) begin(claim driver.Claim) (pause time.Duration, probes bool) {
	if !claim.Queue.Waits() || claim.MaxHolders > 1 || claim.Owner != claim.ID || claim.Repeated {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[claim.Key]
	if of == nil {
		return 0, false
	}
	// One that waits already was notified late. Without the pause of others, the last holder would
	// always be the first to ask.
	if of.paused = !of.paused && c.waiters[claim.Key] == 0; of.paused {
		if pause = c.pause(of); pause > 0 {
			return pause, false
		}
	}
	if of.ballots > 0 {
		of.ballots--
		return 0, true
	}
	if of.rivals == 0 {
		delete(c.of, claim.Key)
	}
	return 0, false
}

// collided notes that several claims each got a part of the nodes, and none was granted. It returns
// when to make the claim again, which took so long. The caller of one that does not wait soon gives
// up, so its pause is long compared with that.
func (c *contention) collided(claim driver.Claim, took time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := claim.Key
	of := c.of[key]
	if of == nil {
		if len(c.of) >= maxContested {
			clear(c.of)
		}
		of = &contested{}
		c.of[key] = of
	}
	of.rivals, of.ballots = min(2*of.rivals+1, maxRivals), probedBallots
	if claim.Queue.Waits() {
		return c.pause(of)
	}
	return c.upTo(max(time.Duration(min(4*(of.rivals+1), 100))*time.Millisecond, 4*took))
}

// isAhead reports whether the holder that the first node names is to be believed: it was another
// one at the last probe. One that stays may be the rest of a claim that a minority has granted.
func (c *contention) isAhead(key, holder string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[key]
	if of == nil || holder == "" || of.holder == holder {
		return false
	}
	of.holder, of.ballots, of.rivals = holder, probedBallots, min(of.rivals+1, maxRivals)
	return true
}

// ended notes how long a claim took that had an answer, and whether it was granted.
func (c *contention) ended(key string, took time.Duration, granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trip == 0 || took < c.trip {
		c.trip = took
	} else {
		c.trip += (took - c.trip) / 16 // it may have been slow for a reason of its own
	}
	if of := c.of[key]; of != nil && granted {
		of.rivals, of.releases = of.rivals-(of.rivals+7)/8, 0
	}
}

// wait notes that a process waits for the key until the function is called.
func (c *contention) wait(key string) (stop func()) {
	add := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiters[key] += n; c.waiters[key] == 0 {
			delete(c.waiters, key)
		}
	}
	add(1)
	return sync.OnceFunc(func() { add(-1) })
}

// released notes a release of the key, and returns how long a waiter is to leave it to others.
func (c *contention) released(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[key]
	if of == nil {
		return 0
	}
	of.releases++
	return c.pause(of)
}

// probe waits for the vote of the first node, but not for long. It returns true if another claim is
// ahead, and then the ballot is over. The answer names no holder, because one node does not know
// it: its release may be under way, so that no further notification comes.
func (b *ballot) probe(ctx context.Context) (behind bool, refusal driver.Answer) {
	votes := b.votes.wait(ctx, 1, func(votes []vote, late bool) (bool, time.Duration) {
		return late || len(votes) > 0, shortGrace
	})
	for _, a := range known(votes) {
		// If the key is shared, a majority has to keep others away for the claim.
		alone := a.State == driver.Busy && a.Reason == driver.HeldByOther
		if alone && b.locker.contention.isAhead(b.claim.Key, a.Holder) {
			a.Holder = ""
			return true, a
		}
	}
	return false, driver.Answer{}
}
