package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	// errTooLate means that a majority has granted the claim when its TTL had passed.
	errTooLate = errors.New("a majority has granted it too late")
	// errOther means that a node does not hold the claim under its fence.
	errOther = errors.New("it does not hold the claim under its fence")
)

// A ballot is one claim at all nodes at once.
type ballot struct {
	locker *Locker
	claim  driver.Claim
	order  *callOrder
	call   func(ctx context.Context, n *node, done func(int, vote)) // makes the claim
	start  time.Time
	votes  *gathering[driver.Answer]
	won    bool         // it may be lost all the same
	lease  driver.Claim // the claim with its fence, once it is won
	raised *gathering[driver.Answer]
}

// TryAcquire implements driver.Locker. The claim is granted if a majority has granted it while the
// TTL lasts.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if err := ctx.Err(); err != nil {
		return driver.Answer{}, driver.NewStoreError("redlock", driver.OpAcquire, c.Key, err)
	}
	if err := l.verify(ctx, c.Key); err != nil {
		return driver.Answer{}, err
	}
	pause, probes := l.contention.begin(c)
	if pause > 0 {
		return driver.Answer{State: driver.Busy, Reason: driver.Unsent, Left: pause}, nil
	}
	order := l.orders.enter(c.ID)
	defer order.leave()
	order.released.Store(false)
	if c.Fence == 0 {
		c.Fences.Hint = l.clocks.hint(l.quorum)
	}
	b := &ballot{
		locker: l, claim: c, order: order, call: l.calls(driver.OpAcquire, c, driver.After{}), start: time.Now(),
		votes: newGathering[driver.Answer](len(l.nodes)),
	}
	t, err := b.hold(ctx, probes)
	if err == nil { // a claim without an answer takes as long as the caller waits
		l.contention.ended(c.Key, time.Since(b.start), t.verdict == granted)
	}
	if err == nil && t.verdict == granted {
		var reserved int
		if reserved, err = b.win(ctx, t); err == nil {
			return driver.Answer{State: driver.Granted, Fence: t.fence, Reserved: reserved, Held: t.held}, nil
		}
	}
	b.lose(err == nil && t.refusal.Reason == driver.HeldForClaim)
	if t.refusal.Reason == driver.Undecided {
		t.refusal.Left = l.contention.collided(c, time.Since(b.start))
	}
	var failed *driver.StoreError
	if errors.As(err, &failed) {
		failed.Revoked = true
	}
	return t.refusal, err
}

// hold asks the nodes, and returns the count of their votes once it is decided.
func (b *ballot) hold(ctx context.Context, probes bool) (t tally, err error) {
	l, nodes := b.locker, b.locker.nodes
	if probes {
		first := l.contention.first
		b.order.ask(ctx, []*node{first}, b.claim.TTL, b.votes, b.vote)
		if behind, refusal := b.probe(ctx); behind {
			return tally{verdict: refused, refusal: refusal}, nil
		}
		nodes = slices.Delete(slices.Clone(nodes), first.index, first.index+1)
	}
	b.order.ask(ctx, nodes, b.claim.TTL, b.votes, b.vote)
	votes := b.votes.wait(ctx, len(l.nodes)-l.quorum+1, func(votes []vote, late bool) (bool, time.Duration) {
		t = l.count(votes, late)
		return t.verdict > undecided, t.grace
	})
	if t.verdict != granted && t.verdict != refused {
		return tally{}, noQuorum(ctx, driver.OpAcquire, b.claim.Key, l.nodes, votes)
	}
	return t, nil
}

// vote sends the claim to the node, in its turn.
func (b *ballot) vote(ctx context.Context, n *node, done func(int, vote)) {
	if b.order.at[n.index].releasing.Load() > 0 {
		done(0, vote{node: n, err: errReleasing})
		return
	}
	b.call(ctx, n, done)
}

// win ends a ballot that the claim has won, once a majority has its fence. It returns how many
// fences above that a majority has reserved: as many as each node has that has granted that fence.
func (b *ballot) win(ctx context.Context, t tally) (reserved int, err error) {
	l, lease := b.locker, &b.lease
	*lease = b.claim
	lease.Fence, lease.Fences = t.fence, driver.FenceRequest{Reserve: max(b.claim.Fences.Reserve, 0)}
	votes := b.votes.handle(func(votes []vote) func(vote) {
		have := 0
		for _, n := range l.nodes {
			i := slices.IndexFunc(votes, func(v vote) bool { return v.node == n })
			switch {
			case i < 0:
				b.order.at[n.index].releasing.Add(1)
			case grants(votes[i]) && votes[i].value.Fence == lease.Fence:
				have++
				lease.Fences.Reserve = min(lease.Fences.Reserve, votes[i].value.Reserved)
			}
		}
		if have < l.quorum {
			b.raised = newGathering[driver.Answer](len(l.nodes))
		}
		b.won = true
		return func(v vote) {
			b.correct(ctx, v)
			b.order.at[v.node.index].releasing.Add(-1)
		}
	})
	for _, v := range votes {
		b.correct(ctx, v)
	}
	if b.raised != nil {
		got := b.raised.wait(ctx, 1, func(got []vote, late bool) (bool, time.Duration) {
			possible := answered(got) + len(l.nodes) - len(got)
			if answered(got) >= l.quorum || possible < l.quorum {
				return true, 0
			}
			if silent := len(l.nodes) - len(b.votes.replies()); possible-silent < l.quorum {
				return late, longGrace // only nodes that have not voted could complete it
			}
			return false, 0
		})
		if answered(got) < l.quorum {
			return 0, noQuorum(ctx, driver.OpAcquire, lease.Key, l.nodes, got)
		}
	}
	if time.Since(b.start) > b.claim.TTL-drift(b.claim.TTL) {
		return 0, &driver.StoreError{
			Backend: "redlock", Op: driver.OpAcquire, Key: b.claim.Key, Kind: driver.KindTimeout, Err: errTooLate,
		}
	}
	return lease.Fences.Reserve, nil
}

// correct has the node of a vote hold the lease under its fence, or not at all. A higher fence
// would mislead calls that join, so the node releases its grant and acquires the lease again. The
// next renewal raises a lower one. If the lease's release has begun, that release does all of this.
//
// If raised is not nil, too few nodes have the fence. Then correct raises a lower one at once, has
// the node reserve what the lease reserves, and tells raised when this is done. Every later
// majority has one of the nodes of this one in it. So its fence is higher than that of the lease
// and of all claims to which it is handed off.
func (b *ballot) correct(ctx context.Context, v vote) {
	l, n, a, lease := b.locker, v.node, v.value, &b.lease
	switch {
	case wants(v): // the node keeps others away, but the claim holds the key on other nodes
		c := b.claim
		c.Repeated = true
		l.releaseAt(b.order, n, c, false)
		b.confirm(n, errOther)
	case !grants(v), b.order.released.Load():
		b.confirm(n, cmp.Or(v.err, errOther))
	case a.Fence == lease.Fence && a.Reserved >= lease.Fences.Reserve:
		b.confirm(n, nil)
	case a.Fence == lease.Fence: // it came late, and has reserved too few
		b.confirm(n, errOther)
	case a.Fence > lease.Fence:
		l.releaseAt(b.order, n, *lease, false)
		l.reacquireAt(b.order, n, *lease, func(err error) { b.confirm(n, err) })
	case b.raised != nil:
		b.order.background(ctx, n, false, lease.TTL, driver.OpRenew, *lease, driver.After{}, func(v vote) {
			if v.err == nil && !v.value.Held {
				v.err = errOther
			}
			b.confirm(n, v.err)
		})
	}
}

// confirm tells raised, unless it is nil, whether the node has the lease under its fence.
func (b *ballot) confirm(n *node, err error) {
	if b.raised != nil {
		b.raised.add(vote{node: n, err: err})
	}
}

// lose ends a ballot that is lost, and releases every grant, and every claim that may be one. If
// the claim is not wanted by a majority, no node may want it.
func (b *ballot) lose(wanted bool) {
	b.order.released.Store(true)
	undo := func(v vote) {
		if v.err != nil || grants(v) || wants(v) && !wanted {
			c := b.claim
			c.Repeated = c.Repeated || !grants(v)
			b.locker.releaseAt(b.order, v.node, c, v.err != nil)
		}
	}
	votes := b.votes.handle(func([]vote) func(vote) {
		return func(v vote) {
			undo(v)
			if b.won {
				b.order.at[v.node.index].releasing.Add(-1)
			}
		}
	})
	for _, v := range votes { // also those that came after the win
		undo(v)
	}
}
