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
	quorum, spare := l.quorum, len(l.nodes)-l.quorum
	count := func(r *replies[bool]) (held, gone int) {
		for i, yes := range r.values {
			if yes && r.errs[i] == nil {
				held++
			}
		}
		return held, r.answered - held
	}
	r := gather(ctx, l, l.nodes, max(c.TTL, releaseAtLeast), func(call context.Context, done func(*node, bool, error)) func(*node) {
		answered := func(of *request[bool], held bool, err error) {
			done(of.node, held, err)
			if err != nil || order.at[of.node.index].unknown.Load() {
				l.releaseAgain(order, of.node, c, after)
			}
			order.end(of.node)
		}
		release := func(n *node) { n.release(call, &c, after, answered) }
		return func(n *node) { order.inTurn(n, release) }
	}, func(r *replies[bool], _ bool) (bool, time.Duration) {
		held, gone := count(r)
		return held >= quorum || gone > spare || held+r.pending < quorum && gone+r.pending <= spare, 0
	})
	switch held, gone := count(r); {
	case held >= quorum:
		return true, nil
	case gone > spare:
		return false, nil
	}
	return false, l.noQuorum(driver.OpRelease, c.Key, r.errs)
}

// releaseAt releases a claim at one node, in the background. The release goes before the calls
// that wait for that node, because the claim may have been made again. If unknown, the claim may
// still arrive at the node.
func (l *Locker) releaseAt(order *callOrder, n *node, c driver.Claim, unknown bool) {
	order.at[n.index].releasing.Add(1)
	order.inNextTurn(n, func(n *node) {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout(c.TTL))
		n.release(ctx, &c, driver.After{}, func(_ *request[bool], _ bool, err error) {
			cancel()
			if err == nil {
				order.at[n.index].hasReleased()
			} else {
				l.orders.enter(c.ID) // order: this call is under way
				// it may arrive yet
				time.AfterFunc(repeatAfter, func() { order.at[n.index].hasReleased(); order.leave() })
			}
			if err != nil || unknown {
				l.releaseAgain(order, n, c, driver.After{})
			}
			order.end(n)
		})
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
	l.orders.enter(c.ID) // order: a call of its is under way
	time.AfterFunc(min(repeatAfter, c.TTL), func() {
		defer order.leave()
		defer l.repeating.Add(-1)
		order.inTurn(n, func(n *node) {
			if !order.released.Load() {
				order.end(n)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout(c.TTL))
			n.release(ctx, &c, after, func(*request[bool], bool, error) {
				cancel()
				order.end(n)
			})
		})
	})
}
