package redlock

import (
	"bytes"
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// releaseAtLeast is the least that a release at one node may take, see releaseTimeout.
	releaseAtLeast = 2 * time.Second
	// repeatAfter is after how long a release is repeated if it had no answer, or if its claim had
	// none: the claim can arrive after the release. maxRepeats is how many are repeated at the same
	// time. The others end with their TTL.
	repeatAfter = 500 * time.Millisecond
	maxRepeats  = 1000
)

// releaseTimeout bounds a release at one node for which no caller waits.
func releaseTimeout(ttl time.Duration) time.Duration { return max(ttl/3, releaseAtLeast) }

// Release implements driver.Locker. It goes to all nodes, and returns when a majority has
// confirmed it.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("redlock", driver.OpRelease, c.Key, err)
	}
	// it is the caller's, and a slow node may read it after the caller has left
	after.Record = bytes.Clone(after.Record)
	order := l.orders.enter(c.ID)
	defer order.leave()
	order.released.Store(true)
	g := newGathering[driver.Answer](len(l.nodes))
	g.handle(func([]vote) func(vote) {
		return func(r vote) {
			if r.err != nil || order.at[r.node.index].unknown.Load() {
				l.releaseAgain(order, r.node, c, after)
			}
		}
	})
	order.ask(ctx, l.nodes, max(c.TTL, releaseAtLeast), g, l.calls(driver.OpRelease, c, after))
	got := g.wait(ctx, len(l.nodes)-l.quorum+1, func(got []vote, _ bool) (bool, time.Duration) {
		return l.heldBy(got) != undecided, 0
	})
	return l.held(ctx, driver.OpRelease, c.Key, got)
}

// releaseAt releases a claim at one node, in the background. The release goes before the calls
// that wait for that node, because the claim may have been made again. If unknown, the claim may
// still arrive at the node.
func (l *Locker) releaseAt(order *callOrder, n *node, c driver.Claim, unknown bool) {
	at := &order.at[n.index]
	at.releasing.Add(1)
	order.background(context.Background(), n, true, releaseTimeout(c.TTL), driver.OpRelease, c, driver.After{}, func(r vote) {
		if r.err == nil {
			at.hasReleased()
		} else {
			order.after(repeatAfter, at.hasReleased) // it may arrive yet
		}
		if r.err != nil || unknown {
			l.releaseAgain(order, n, c, driver.After{})
		}
	})
}

// releaseAgain repeats a release at one node after some time, in the background, unless the claim
// is made again.
func (l *Locker) releaseAgain(order *callOrder, n *node, c driver.Claim, after driver.After) {
	if l.repeating.Add(1) > maxRepeats {
		l.repeating.Add(-1)
		return
	}
	c.Repeated = true
	order.after(min(repeatAfter, c.TTL), func() {
		l.repeating.Add(-1)
		order.background(context.Background(), n, false, releaseTimeout(c.TTL), driver.OpRelease, c, after, func(vote) {})
	})
}
