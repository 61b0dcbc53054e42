package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	turns  *claim
	start  time.Time
	call   callContext
	asks   []ask // by node

	mu      sync.Mutex
	waiter  *waiter // of the caller, while it waits
	probing bool    // only the first node was asked so far
	votes   []vote  // in the order of their arrival, until the ballot is lost
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

// An ask is a request of a ballot to one node.
type ask struct {
	ballot *ballot
	node   *node
	call   *callContext
	sent   time.Time
}

// TryAcquire implements driver.Locker. The claim is granted if a majority has granted it while the
// TTL lasts.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, driver.NewStoreError("redlock", driver.OpAcquire, c.Key, err)
	}
	if err := l.verify(ctx, c.Key); err != nil {
		return driver.Grant{}, err
	}
	turns := l.claims.enter(c.ID)
	defer l.claims.leave(turns)
	l.claims.setReleased(turns, false)
	if c.Fence == 0 {
		c.Hint = l.clocks.hint(l.quorum)
	}
	b := &ballot{
		locker: l, claim: c, turns: turns, start: time.Now(),
		waiter: l.newWaiter(), votes: make([]vote, 0, len(l.nodes)),
	}
	t, err := b.hold(ctx)
	if err == nil && t.verdict == granted {
		var reserved int
		if reserved, err = b.win(ctx, t); err == nil {
			return driver.Grant{
				State: driver.Granted, Fence: t.fence, Reserved: reserved, Held: t.held,
			}, nil
		}
	}
	b.lose(err == nil && t.refusal.Wanted)
	if t.refusal.Contested {
		l.probes.met(c.Key)
	}
	var failed *driver.StoreError
	if errors.As(err, &failed) {
		failed.Revoked = true
	}
	return t.refusal, err
}

// hold asks the nodes, and returns the count of their votes once it is decided.
func (b *ballot) hold(ctx context.Context) (tally, error) {
	defer b.stopWaiting()
	b.prepare(ctx)
	var asked *node
	if l := b.locker; l.probes.begin(b.claim) {
		asked, b.probing = l.probes.first, true
		b.ask(asked)
		if behind, refusal := b.probe(ctx); behind {
			b.call.end()
			return tally{verdict: refused, refusal: refusal}, nil
		}
	}
	b.askAll(asked)
	return b.await(ctx)
}

// prepare makes the requests to the nodes.
func (b *ballot) prepare(ctx context.Context) {
	nodes := b.locker.nodes
	b.call.begin(ctx, b.claim.TTL, len(nodes))
	b.asks = make([]ask, len(nodes))
	for i, n := range nodes {
		b.asks[i] = ask{ballot: b, node: n, call: &b.call}
	}
}

// ask sends the claim to the node.
func (b *ballot) ask(n *node) { b.locker.claims.inTurn(b.turns, n, &b.asks[n.index]) }

// askAll sends the claim to all nodes but the one that was asked, if any.
func (b *ballot) askAll(asked *node) {
	for _, n := range b.locker.nodes {
		if n != asked {
			b.ask(n)
		}
	}
}

// start implements step.
func (a *ask) start() {
	b := a.ballot
	a.sent = time.Now()
	if b.locker.claims.isUndoing(b.turns, a.node) {
		a.vote(driver.Grant{}, errReleasing)
		return
	}
	if err := a.node.begin(driver.OpAcquire, b.claim.Key); err != nil {
		a.vote(driver.Grant{}, err)
		return
	}
	a.node.startAcquire(a.call, b.claim, a.answered)
}

func (a *ask) answered(grant driver.Grant, err error) {
	a.node.ended(a.call, driver.OpAcquire, a.sent, err)
	if err == nil {
		a.ballot.locker.clocks.observe(a.node.index, grant.Clock, a.sent)
	}
	a.vote(grant, err)
}

func (a *ask) vote(grant driver.Grant, err error) {
	b := a.ballot
	b.take(vote{a.node, grant, err})
	a.call.answered()
	b.locker.claims.end(b.turns, a.node)
}

// lastOf returns a function that calls f when it is called for the n-th time.
func lastOf(n int, f func()) func() {
	var left atomic.Int32
	left.Store(int32(n))
	return func() {
		if left.Add(-1) == 0 {
			f()
		}
	}
}

// take counts a vote, and wakes the caller if that may decide. If the ballot is over, take corrects
// the node: it must not hold a claim that is not needed.
func (b *ballot) take(v vote) {
	b.mu.Lock()
	over, lease := b.outcome, b.lease
	if over != lost {
		b.votes = append(b.votes, v)
	}
	if b.waiter != nil && (b.probing || b.locker.count(b.votes, false).verdict != undecided) {
		b.waiter.wake()
	}
	b.mu.Unlock()
	switch over {
	case open:
	case won:
		b.correct(v, lease)
		b.locker.claims.noteVote(b.turns, v.node)
	case lost:
		b.undo(v)
	}
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
	var patience <-chan time.Time
	hasty, patient := false, false
	for {
		late, err := b.waiter.wait(ctx, patience)
		if err != nil {
			return tally{}, b.error(ctx)
		}
		hasty = hasty || late
		b.mu.Lock()
		t := b.locker.count(b.votes, hasty)
		b.mu.Unlock()
		switch t.verdict {
		case granted, refused:
			return t, nil
		case failed:
			return tally{}, b.error(ctx)
		case hesitant:
			if patience == nil || t.held && !patient {
				wait := shortPatience
				if patient = t.held; patient {
					wait = longPatience
				}
				timer := time.NewTimer(wait + 2*time.Since(b.start))
				defer timer.Stop()
				patience = timer.C
			}
		case undecided:
		}
	}
}

func (b *ballot) stopWaiting() {
	b.mu.Lock()
	w := b.waiter
	b.waiter = nil // take wakes nobody from now on
	b.mu.Unlock()
	b.locker.free(w)
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
	b.locker.claims.noteVotes(b.turns, votes)
	b.mu.Unlock()
	var lower []*node
	have := 0
	for _, v := range votes {
		switch {
		case v.grant.Wanted:
			b.correct(v, lease)
		case v.err != nil || v.grant.State != driver.Granted:
		case v.grant.Fence > t.fence:
			b.correct(v, lease)
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
	call, cancel := detached(ctx, c.TTL)
	last := lastOf(len(lower), cancel)
	type answer struct {
		node *node
		err  error
	}
	answers := make(chan answer, len(lower))
	for _, n := range lower {
		l.claims.inTurn(b.turns, n, stepFunc(func() {
			n.renew(call, c, func(held bool, err error) {
				if err == nil && !held {
					err = errGone
				}
				answers <- answer{n, err}
				last()
				l.claims.end(b.turns, n)
			})
		}))
	}
	errs := make([]error, len(l.nodes)) // the errors of nodes that have answered
	for pending := len(lower); have+pending >= l.quorum; pending-- {
		select {
		case a := <-answers:
			if errs[a.node.index] = a.err; a.err == nil {
				have++
			}
		case <-ctx.Done():
			return driver.NewStoreError("redlock", driver.OpAcquire, c.Key, ctx.Err())
		}
		if have >= l.quorum {
			return nil
		}
	}
	return l.noQuorum(driver.OpAcquire, c.Key, errs)
}

// lose ends a ballot that is lost, and releases every grant, and every claim that may be one. If
// the claim is not wanted by a majority, no node may want it.
func (b *ballot) lose(wanted bool) {
	b.locker.claims.setReleased(b.turns, true)
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
	if v.err != nil || v.grant.State == driver.Granted || v.grant.Wanted && !b.wanted {
		c := b.claim
		c.Repeated = c.Repeated || v.grant.State != driver.Granted
		b.locker.releaseAt(b.turns, v.node, c, v.err != nil)
	}
}

// correct releases a grant with a fence above the lease's, which would mislead calls that join. It
// lets the node acquire the lease again under the lease's fence. The next renewal raises a lower
// fence. If the lease's release has begun, that release does all of this.
func (b *ballot) correct(v vote, lease driver.Claim) {
	l := b.locker
	if v.grant.Wanted { // the node keeps others away, but the claim holds the key on other nodes
		b.undo(v)
		return
	}
	if v.err != nil || v.grant.State != driver.Granted || v.grant.Fence <= lease.Fence || l.claims.isReleased(b.turns) {
		return
	}
	l.releaseAt(b.turns, v.node, lease, false)
	l.takeIn(b.turns, v.node, lease)
}
