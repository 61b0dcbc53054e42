package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// errTooLate means that a majority has granted the claim when its TTL had passed.
var errTooLate = errors.New("a majority has granted it too late")

// errGone means that a node has lost the claim before the ballot was over.
var errGone = errors.New("it has lost the claim again")

// A ballot is one claim at all nodes at once.
type ballot struct {
	locker *Locker
	claim  driver.Claim
	order  *callOrder
	start  time.Time
	call   callContext
	waiter *waiter
	done   func(*request[driver.Answer], driver.Answer, error) // is answered

	mu      sync.Mutex
	probing bool   // only the first node was asked so far
	votes   []vote // in the order of their arrival, until the ballot is lost
	outcome outcome
	lease   driver.Claim // if won: the claim, its fence, the fences that it reserves
	wanted  bool         // if lost: it is made again, and nodes keep others away for it
}

type outcome uint8

const (
	open outcome = iota
	won
	lost
)

// TryAcquire implements driver.Locker. The claim is granted if a majority has granted it while the
// TTL lasts.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if err := ctx.Err(); err != nil {
		return driver.Answer{}, driver.NewStoreError("redlock", driver.OpAcquire, c.Key, err)
	}
	if err := l.verify(ctx, c.Key); err != nil {
		return driver.Answer{}, err
	}
	order := l.orders.enter(c.ID)
	defer order.leave()
	order.released.Store(false)
	if c.Fence == 0 {
		c.Hint = l.clocks.hint(l.quorum)
	}
	b := &ballot{
		locker: l, claim: c, order: order, start: time.Now(),
		waiter: l.newWaiter(), votes: make([]vote, 0, len(l.nodes)),
	}
	b.done = b.answered
	t, err := b.hold(ctx)
	l.waiters.Put(b.waiter)
	if err == nil && t.verdict == granted {
		var reserved int
		if reserved, err = b.win(ctx, t); err == nil {
			return driver.Answer{
				State: driver.Granted, Fence: t.fence, Reserved: reserved, Held: t.held,
			}, nil
		}
	}
	b.lose(err == nil && t.refusal.Reason == driver.HeldForClaim)
	if t.refusal.Reason == driver.Collided {
		l.probes.collided(c.Key)
	}
	var failed *driver.StoreError
	if errors.As(err, &failed) {
		failed.Revoked = true
	}
	return t.refusal, err
}

// hold asks the nodes, and returns the count of their votes once it is decided.
func (b *ballot) hold(ctx context.Context) (tally, error) {
	nodes := b.locker.nodes
	b.call.begin(ctx, b.claim.TTL, len(nodes))
	var first *node
	if p := b.locker.probes; p.begin(b.claim) {
		first, b.probing = p.first, true
		b.order.inTurn(first, b.ask)
		if behind, refusal := b.probe(ctx); behind {
			for range len(nodes) - 1 {
				b.call.answered() // they are not asked
			}
			return tally{verdict: refused, refusal: refusal}, nil
		}
	}
	ask := b.ask
	for _, n := range nodes {
		if n != first {
			b.order.inTurn(n, ask)
		}
	}
	return b.await(ctx)
}

// ask sends the claim to the node, in its turn.
func (b *ballot) ask(n *node) {
	if b.order.at[n.index].releasing.Load() > 0 {
		b.take(vote{n, driver.Answer{}, errReleasing})
		return
	}
	n.acquire(&b.call, &b.claim, b.done)
}

func (b *ballot) answered(r *request[driver.Answer], grant driver.Answer, err error) {
	if err == nil {
		b.locker.clocks.observe(r.node.index, grant.Clock, r.sent)
	}
	b.take(vote{r.node, grant, err})
}

// take counts a vote, and wakes the caller if that may decide. If the ballot is over, take corrects
// the node: it must not hold a claim that is not needed.
func (b *ballot) take(v vote) {
	b.mu.Lock()
	over, lease := b.outcome, b.lease
	if over != lost {
		b.votes = append(b.votes, v)
	}
	wakes := over == open && (b.probing || b.locker.count(b.votes, false).verdict != undecided)
	b.mu.Unlock()
	if wakes {
		b.waiter.wake()
	}
	switch over {
	case open:
	case won:
		b.reissue(v, lease)
	case lost:
		b.undo(v)
	}
	if lease.Key != "" {
		b.order.at[v.node.index].releasing.Add(-1) // as far as this ballot is concerned
	}
	b.call.answered()
	b.order.end(v.node)
}

const (
	// shortPatience is how long to wait for votes that would add information.
	shortPatience = 5 * time.Millisecond
	// longPatience is for a claim that seems to be a repeated one. It is rare, as its first answer
	// was lost, and votes that are missing would tell the fence that it has.
	longPatience = 100 * time.Millisecond
)

// await returns the count of the votes once it is decided.
func (b *ballot) await(ctx context.Context) (tally, error) {
	var t tally
	b.waiter.wait(ctx, func(late bool) (bool, time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch t = b.locker.count(b.votes, late); {
		case t.verdict == undecided:
			return false, 0
		case t.verdict == waitForMore && t.held:
			return false, longPatience
		case t.verdict == waitForMore:
			return false, shortPatience
		}
		return true, 0
	})
	if t.verdict == granted || t.verdict == refused {
		return t, nil
	}
	return tally{}, b.error(ctx)
}

// error returns why there is no majority, or that the caller has left.
func (b *ballot) error(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return driver.NewStoreError("redlock", driver.OpAcquire, b.claim.Key, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := silentAll(b.locker.nodes)
	for _, v := range b.votes {
		errs[v.node.index] = v.err
	}
	return b.locker.noQuorum(driver.OpAcquire, b.claim.Key, errs)
}

// win ends a ballot that the claim has won, once a majority has its fence. It returns how many
// fences above that a majority has reserved.
func (b *ballot) win(ctx context.Context, t tally) (reserved int, err error) {
	lease := b.claim
	lease.Fence, lease.Hint = t.fence, 0
	b.mu.Lock()
	lease.Reserve = b.reserved(t)
	b.outcome, b.lease = won, lease
	votes := b.votes // take handles those that arrive from now on
	for _, n := range b.locker.silent(votes) {
		b.order.at[n.index].releasing.Add(1) // if its vote shows that it must
	}
	b.mu.Unlock()
	var lower []*node
	have := 0
	for _, v := range votes {
		switch {
		case v.wants():
			b.reissue(v, lease)
		case v.err != nil || v.grant.State != driver.Granted:
		case v.grant.Fence > t.fence:
			b.reissue(v, lease)
		case v.grant.Fence < t.fence:
			lower = append(lower, v.node)
		default:
			have++
		}
	}
	if have < b.locker.quorum {
		if err := b.raise(ctx, lease, have, lower); err != nil {
			return 0, err
		}
	}
	if time.Since(b.start) > b.claim.TTL-drift(b.claim.TTL) {
		return 0, &driver.StoreError{
			Backend: "redlock", Op: driver.OpAcquire, Key: b.claim.Key, Kind: driver.KindTimeout, Err: errTooLate,
		}
	}
	return lease.Reserve, nil
}

// reserved returns how many fences above the lease's fence are reserved by all nodes that have
// granted that fence. The other nodes of the majority reserve as many when their fences are
// raised. b.mu must be held.
func (b *ballot) reserved(t tally) int {
	least := max(b.claim.Reserve, 0)
	for _, v := range b.votes {
		if v.grants() && v.grant.Fence == t.fence {
			least = min(least, v.grant.Reserved)
		}
	}
	return least
}

// raise gives the lease's fence to nodes that have granted a lower one, and lets them reserve what
// the lease reserves, until a majority has done so. Every later majority has one of these nodes in
// it. So its fence is higher than that of the lease and of all claims to which it is handed off.
func (b *ballot) raise(ctx context.Context, c driver.Claim, have int, lower []*node) error {
	l := b.locker
	r := gather(ctx, l, lower, c.TTL, func(call context.Context, done func(*node, struct{}, error)) func(*node) {
		renew := func(n *node) {
			n.renew(call, c, func(held bool, err error) {
				if err == nil && !held {
					err = errGone
				}
				done(n, struct{}{}, err)
				b.order.end(n)
			})
		}
		return func(n *node) { b.order.inTurn(n, renew) }
	}, func(r *replies[struct{}], _ bool) (bool, time.Duration) {
		return have+r.answered >= l.quorum || have+r.answered+r.pending < l.quorum, 0
	})
	switch {
	case have+r.answered >= l.quorum:
		return nil
	case have+r.answered+r.pending >= l.quorum:
		return driver.NewStoreError("redlock", driver.OpAcquire, c.Key, ctx.Err())
	}
	return l.noQuorum(driver.OpAcquire, c.Key, r.errs)
}

// lose ends a ballot that is lost, and releases every grant, and every claim that may be one. If
// the claim is not wanted by a majority, no node may want it.
func (b *ballot) lose(wanted bool) {
	b.order.released.Store(true)
	b.mu.Lock()
	b.outcome, b.wanted = lost, wanted
	votes := b.votes // also of a win that failed; take handles those that arrive from now on
	b.mu.Unlock()
	for _, v := range votes {
		b.undo(v)
	}
}

// undo releases the claim at a node that has granted it, or may have, or that wants it needlessly.
func (b *ballot) undo(v vote) {
	if v.err != nil || v.grant.State == driver.Granted || v.wants() && !b.wanted {
		c := b.claim
		c.Repeated = c.Repeated || v.grant.State != driver.Granted
		b.locker.releaseAt(b.order, v.node, c, v.err != nil)
	}
}

// reissue releases a grant with a fence above the lease's, which would mislead calls that join. It
// lets the node acquire the lease again under the lease's fence. The next renewal raises a lower
// fence. If the lease's release has begun, that release does all of this.
func (b *ballot) reissue(v vote, lease driver.Claim) {
	l := b.locker
	if v.wants() { // the node keeps others away, but the claim holds the key on other nodes
		c := b.claim
		c.Repeated = true
		l.releaseAt(b.order, v.node, c, false)
		return
	}
	if v.err != nil || v.grant.State != driver.Granted || v.grant.Fence <= lease.Fence || b.order.released.Load() {
		return
	}
	l.releaseAt(b.order, v.node, lease, false)
	l.reacquireAt(b.order, v.node, lease)
}
