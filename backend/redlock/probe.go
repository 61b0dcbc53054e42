package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// This file is about keys that several processes want at the same time. If all of them ask all
// nodes at once, the nodes split their votes, and nobody is granted the key. So a ballot for such a
// key asks one node first, which is the same in all processes. The claim that this node grants asks
// the others. Each other claim has cost one call.

const (
	// probedBallots is for how many ballots a key is probed after one in which claims collided.
	probedBallots = 64
	// maxProbed bounds the keys that are probed.
	maxProbed = 256
)

// probes are the keys for which claims have collided.
type probes struct {
	first *node // that is asked first

	mu sync.Mutex
	of map[string]*probe
}

type probe struct {
	ballots int    // to come
	holder  string // the holder that the first node has named last
}

// newProbes returns no keys. The first node is the one with the least address, because processes
// may name their nodes in different orders.
func newProbes(nodes []*node) *probes {
	p := &probes{first: nodes[0], of: map[string]*probe{}}
	for _, n := range nodes {
		if n.addr < p.first.addr {
			p.first = n
		}
	}
	return p
}

// begin reports whether a ballot for the claim asks the first node alone. What one node says is
// enough for a claim that will be made again. Claims that share a key, or an owner, may be granted
// a key that others hold.
func (p *probes) begin(c driver.Claim) bool {
	if !c.Queue.Waits() || c.MaxHolders > 1 || c.Owner != c.ID {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[c.Key]
	if of == nil {
		return false
	}
	if of.ballots--; of.ballots < 0 {
		delete(p.of, c.Key)
		return false
	}
	return true
}

// collided notes that several claims each got a part of the nodes, and none was granted.
func (p *probes) collided(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[key]
	if of == nil {
		if len(p.of) >= maxProbed {
			clear(p.of)
		}
		of = &probe{}
		p.of[key] = of
	}
	of.ballots = probedBallots
}

// isAhead reports whether the holder that the first node names is to be believed: it was another
// one at the last probe. One that stays may be the rest of a claim that a minority has granted.
func (p *probes) isAhead(key, holder string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[key]
	if of == nil || holder == "" || of.holder == holder {
		return false
	}
	of.holder, of.ballots = holder, probedBallots
	return true
}

// probe waits for the vote of the first node, but not for long. It returns true if another claim is
// ahead, and then the ballot is over.
func (b *ballot) probe(ctx context.Context) (behind bool, refusal driver.Answer) {
	votes := b.votes.wait(ctx, 1, func(votes []vote, late bool) (bool, time.Duration) {
		return late || len(votes) > 0, shortPatience
	})
	switch {
	case len(votes) == 0, votes[0].err != nil, votes[0].value.State != driver.Busy:
		return false, driver.Answer{}
	case votes[0].value.Reason != driver.HeldByOther: // shared: a majority has to keep others away
		return false, driver.Answer{}
	case !b.locker.probes.isAhead(b.claim.Key, votes[0].value.Holder):
		return false, driver.Answer{}
	}
	refusal = votes[0].value
	refusal.Reason = driver.OtherAhead
	return true, refusal
}
