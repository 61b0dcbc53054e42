package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// errReleasing is the answer of a node that holds the claim, but is releasing it, or may be. The
// node must acquire the claim again before it counts.
var errReleasing = errors.New("the node may be releasing the claim")

// A renewal is the renewal of one claim at all nodes at once.
type renewal struct {
	locker   *Locker
	claim    driver.Claim
	order    *callOrder
	releases []int32                    // that had ended at each node when the nodes were asked
	report   func(held bool, err error) // its first call counts

	taken atomic.Int32 // nodes for which all is done

	mu   sync.Mutex
	got  []reply[bool]
	gone []*node // that do not hold the claim, and acquire it again if a majority holds it
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
		var reported atomic.Bool
		rs[i] = &renewal{locker: l, claim: c, order: l.orders.enter(c.ID), report: func(held bool, err error) {
			if reported.CompareAndSwap(false, true) {
				defer open.Done() // even if report ends the goroutine
				report(i, held, err)
			}
		}}
		for j := range l.nodes {
			rs[i].releases = append(rs[i].releases, rs[i].order.at[j].releases.Load())
		}
	}
	g := newGathering[struct{}](nil, len(l.nodes))
	g.ask(ctx, l.nodes, claims[0].TTL, func(ctx context.Context, n *node, done func(reply[struct{}])) {
		n.renewBatch(ctx, claims, func(i int, held bool, err error) {
			rs[i].take(reply[bool]{node: n, value: held, err: err})
		}, done)
	})
	stop := context.AfterFunc(ctx, func() {
		for _, r := range rs {
			r.report(false, r.failed())
		}
	})
	open.Wait()
	stop()
}

// failed returns the error of a renewal that has no majority.
func (r *renewal) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return noQuorum(driver.OpRenew, r.claim.Key, r.locker.nodes, r.got)
}

// take counts a node's answer.
func (r *renewal) take(of reply[bool]) {
	l := r.locker
	quorum, spare := l.quorum, len(l.nodes)-l.quorum
	if i := of.node.index; of.err == nil && of.value && !r.order.at[i].keeps(r.releases[i]) {
		of.err = errReleasing
	}
	r.mu.Lock()
	r.got = append(r.got, of)
	if of.err == nil && !of.value {
		r.gone = append(r.gone, of.node)
	}
	held, gone := countHeld(r.got)
	// A node that is about to lose the claim is no failure: those that have not answered decide.
	last, failed := len(r.got) == len(l.nodes), 0
	for _, of := range r.got {
		if of.err != nil && !errors.Is(of.err, errReleasing) {
			failed++
		}
	}
	var restore []*node
	if held >= quorum {
		restore, r.gone = r.gone, nil
	}
	r.mu.Unlock()
	switch {
	case held >= quorum:
		r.report(true, nil)
	case gone > spare:
		r.report(false, nil)
	case gone+failed > spare || last:
		r.report(false, r.failed())
	}
	if r.claim.Fence != 0 { // otherwise the caller does not give the fence to restore
		for _, n := range restore {
			l.reacquireAt(r.order, n, r.claim, func(error) {})
		}
	}
	if int(r.taken.Add(1)) == len(l.nodes) {
		r.order.leave() // not before: a release has to find the order of what is acquired again
	}
}

// errReleased means that a claim is not to be acquired again: its release has begun.
var errReleased = errors.New("its release has begun")

// reacquireAt acquires a claim that other nodes hold on a node that lacks it, under the claim's
// fence, unless its release has begun. It calls done with nil if the node has it then.
func (l *Locker) reacquireAt(order *callOrder, n *node, c driver.Claim, done func(error)) {
	c.Queue = driver.Unqueued // it holds the key, so no other claim has to make way for it
	c.Repeated = true
	background(order, n, false, c.TTL/3, func(ctx context.Context, done func(vote)) {
		if order.released.Load() {
			done(vote{node: n, err: errReleased})
			return
		}
		n.acquire(ctx, &c, done)
	}, func(v vote) {
		switch a := v.value; {
		case errors.Is(v.err, errReleased):
		case v.err != nil:
			order.at[n.index].unknown.Store(true)
		case order.released.Load():
			v.err = errReleased
		case a.State != driver.Granted || a.Fence != c.Fence:
			v.err = errOther
			if a.State == driver.Granted && a.Fence > c.Fence {
				l.releaseAt(order, n, c, false)
			}
		}
		done(v.err)
	})
}
