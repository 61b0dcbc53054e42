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
	releases []int32 // that had ended at each node when the nodes were asked
	done     func(held bool, err error)

	taken atomic.Int32 // nodes for which all is done

	mu   sync.Mutex
	got  []vote
	gone []*node // that do not hold the claim, and acquire it again if a majority holds it

	decided bool
}

// Renew implements driver.Locker. The claim is renewed if a majority holds it. It is also acquired
// again on nodes that do not hold it, because they restarted empty or were away when it was
// granted.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	driver.Await(ctx, l, driver.OpRenew, []driver.Claim{c}, driver.After{}, func(_ int, a driver.Answer, e error) { held, err = a.Held, e })
	return held, err
}

// Start implements driver.Async. It sends one batch of renewals to each node.
func (l *Locker) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op != driver.OpRenew {
		driver.Each{Locker: l}.Start(ctx, op, claims, after, done)
		return
	}
	if err := ctx.Err(); err != nil || len(claims) == 0 {
		for i, c := range claims {
			done(i, driver.Answer{}, driver.NewStoreError("redlock", op, c.Key, err))
		}
		return
	}
	rs := make([]*renewal, len(claims))
	for i, c := range claims {
		rs[i] = &renewal{locker: l, claim: c, order: l.orders.enter(c.ID), done: func(held bool, err error) {
			done(i, driver.Answer{Held: held}, err)
		}}
		for j := range l.nodes {
			rs[i].releases = append(rs[i].releases, rs[i].order.at[j].releases.Load())
		}
	}
	of := detach(ctx, claims[0].TTL, len(claims)*len(l.nodes))
	for _, n := range l.nodes {
		go n.start(of, new(request), op, claims, after, func(i int, v vote) {
			rs[i].take(v)
			of.ended()
		})
	}
}

// take counts a node's answer.
func (r *renewal) take(of vote) {
	l := r.locker
	quorum, spare := l.quorum, len(l.nodes)-l.quorum
	if i := of.node.index; of.err == nil && of.value.Held && !r.order.at[i].keeps(r.releases[i]) {
		of.err = errReleasing
	}
	r.mu.Lock()
	r.got = append(r.got, of)
	if of.err == nil && !of.value.Held {
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
	decides := !r.decided && (held >= quorum || gone+failed > spare || last)
	r.decided = r.decided || decides
	var err error
	if decides && held < quorum && gone <= spare {
		err = noQuorum(driver.OpRenew, r.claim.Key, l.nodes, r.got)
	}
	r.mu.Unlock()
	if decides {
		r.done(held >= quorum, err)
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
	background(order, n, false, c.TTL/3, func(ctx context.Context, done func(int, vote)) {
		if order.released.Load() {
			done(0, vote{node: n, err: errReleased})
			return
		}
		n.start(ctx, new(request), driver.OpAcquire, []driver.Claim{c}, driver.After{}, done)
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
