package redlock

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// errReleasing is the answer of a node that holds the claim, but is releasing it, or may be. The
// node must acquire the claim again before it counts.
var errReleasing = errors.New("the node may be releasing the claim")

// A renewal is the renewal of one claim at all nodes at once.
type renewal struct {
	locker *Locker
	claim  driver.Claim
	order  *callOrder
	// by node: how many releases had ended there when the nodes were asked
	releases []int32
	report   func(held bool, err error)

	mu       sync.Mutex
	answered int
	held     int
	gone     []*node // that have answered that the claim is not theirs
	failed   int
	errs     []error // by node
	over     bool    // it was reported
	renewed  bool    // a majority holds
}

// Renew implements driver.Locker. The claim is renewed if a majority holds it. It is also acquired
// again on nodes that do not hold it, because they restarted empty or were away when it was
// granted.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	l.RenewBatch(ctx, []driver.Claim{c}, func(_ int, h bool, e error) { held, err = h, e })
	return held, err
}

// RenewBatch implements driver.BatchRenewer. It sends one batch to each node.
func (l *Locker) RenewBatch(ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error)) {
	if err := ctx.Err(); err != nil || len(claims) == 0 {
		for i, c := range claims {
			report(i, false, driver.NewStoreError("redlock", driver.OpRenew, c.Key, err))
		}
		return
	}
	var open sync.WaitGroup
	open.Add(len(claims))
	rs := make([]*renewal, len(claims))
	for i, c := range claims {
		rs[i] = &renewal{
			locker: l, claim: c, order: l.orders.enter(c.ID), errs: silentAll(l.nodes),
			report: func(held bool, err error) { report(i, held, err); open.Done() },
		}
		for j := range l.nodes {
			rs[i].releases = append(rs[i].releases, rs[i].order.at[j].releases.Load())
		}
	}
	call := &callContext{}
	call.begin(ctx, claims[0].TTL, len(l.nodes)*len(claims))
	for _, n := range l.nodes {
		n.renewBatch(call, claims, func(i int, held bool, err error) {
			rs[i].take(n, held, err)
			call.answered()
		})
	}
	stop := context.AfterFunc(ctx, func() {
		for _, r := range rs {
			r.giveUp()
		}
	})
	open.Wait()
	stop()
}

// take counts a node's answer.
func (r *renewal) take(n *node, held bool, err error) {
	l := r.locker
	spare := len(l.nodes) - l.quorum
	if held && err == nil && !r.order.at[n.index].keeps(r.releases[n.index]) {
		err = errReleasing
	}
	r.mu.Lock()
	r.answered++
	last := r.answered == len(l.nodes)
	switch r.errs[n.index] = err; {
	case errors.Is(err, errReleasing):
		// the node is about to lose it: the nodes that have not answered decide about a majority
	case err != nil:
		r.failed++
	case held:
		r.held++
	default:
		r.gone = append(r.gone, n)
	}
	var restore []*node
	over := r.over
	r.renewed = r.renewed || r.held >= l.quorum
	gone := len(r.gone)
	if r.renewed {
		restore, r.gone = r.gone, nil
	}
	r.over = over || r.renewed || gone > spare || gone+r.failed > spare || last
	renewed, first := r.renewed, r.over && !over
	err = nil
	if first && !renewed && gone <= spare {
		err = l.noQuorum(driver.OpRenew, r.claim.Key, r.errs)
	}
	r.mu.Unlock()
	if first {
		r.report(renewed, err)
	}
	if r.claim.Fence != 0 { // otherwise the caller does not give the fence to restore
		for _, n := range restore {
			l.reacquireAt(r.order, n, r.claim)
		}
	}
	if last {
		r.order.leave()
	}
}

// giveUp ends a renewal whose context has ended.
func (r *renewal) giveUp() {
	r.mu.Lock()
	first := !r.over
	r.over = true
	err := r.locker.noQuorum(driver.OpRenew, r.claim.Key, r.errs)
	r.mu.Unlock()
	if first {
		r.report(false, err)
	}
}

// reacquireAt acquires a claim that other nodes hold on a node that lacks it, under the claim's
// fence, unless its release has begun.
func (l *Locker) reacquireAt(order *callOrder, n *node, c driver.Claim) {
	c.Waits = false // it holds the key, so no other claim has to make way for it
	c.Repeated = true
	order.inTurn(n, func(n *node) {
		if order.released.Load() {
			order.end(n)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.TTL/3)
		n.acquire(ctx, &c, func(_ *request[driver.Answer], grant driver.Answer, err error) {
			cancel()
			switch {
			case err != nil:
				order.at[n.index].unknown.Store(true)
			case order.released.Load():
			case grant.State == driver.Granted && grant.Fence > c.Fence:
				l.releaseAt(order, n, c, false)
			}
			order.end(n)
		})
	})
}
