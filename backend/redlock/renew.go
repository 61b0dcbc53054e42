package redlock

import (
	"context"
	"errors"
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

	votes *gathering[driver.Answer]
	taken atomic.Int32 // nodes for which all is done
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
		order := l.orders.enter(c.ID)
		rs[i] = &renewal{locker: l, claim: c, order: order, votes: newGathering[driver.Answer](len(l.nodes)), done: func(held bool, err error) {
			done(i, driver.Answer{Held: held}, err)
		}}
		for j := range l.nodes {
			rs[i].releases = append(rs[i].releases, rs[i].order.at[j].releases.Load())
		}
	}
	of := detach(ctx, claims[0].TTL, len(claims)*len(l.nodes))
	for _, n := range l.nodes {
		go n.start(of, new(request), op, claims, after, func(i int, v vote) {
			rs[i].take(ctx, v)
			of.ended()
		})
	}
}

// take counts a node's answer. The claim is acquired again on nodes that do not hold it once a
// majority does.
func (r *renewal) take(ctx context.Context, v vote) {
	if i := v.node.index; v.err == nil && v.value.Held && !r.order.at[i].keeps(r.releases[i]) {
		v.err = errReleasing
	}
	got := r.votes.add(v)
	now, before := r.locker.heldBy(got), r.locker.heldBy(got[:len(got)-1])
	if now != undecided && before == undecided {
		r.done(r.locker.held(ctx, driver.OpRenew, r.claim.Key, got))
	}
	if before == granted {
		got = got[len(got)-1:] // the others are being restored
	}
	for _, v := range got {
		// Without a fence, the caller does not give the one to restore.
		if now == granted && v.err == nil && !v.value.Held && r.claim.Fence != 0 {
			r.locker.reacquireAt(r.order, v.node, r.claim, func(error) {})
		}
	}
	if int(r.taken.Add(1)) == len(r.locker.nodes) {
		r.order.leave() // not before: a release has to find the order of what is acquired again
	}
}

// reacquireAt acquires a claim that other nodes hold on a node that lacks it, under the claim's
// fence, unless its release has begun. It calls done with nil if the node has it then.
func (l *Locker) reacquireAt(order *callOrder, n *node, c driver.Claim, done func(error)) {
	c.Queue = driver.Unqueued // it holds the key, so no other claim has to make way for it
	c.Repeated = true
	order.background(context.Background(), n, false, c.TTL/3, driver.OpAcquire, c, driver.After{}, func(v vote) {
		switch a := v.value; {
		case errors.Is(v.err, errObsolete):
		case v.err != nil:
			order.at[n.index].unknown.Store(true)
		case order.released.Load():
			v.err = errObsolete
		case a.State != driver.Granted || a.Fence != c.Fence:
			v.err = errOther
			if a.State == driver.Granted && a.Fence > c.Fence {
				l.releaseAt(order, n, c, false)
			}
		}
		done(v.err)
	})
}
