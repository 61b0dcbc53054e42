package redlock

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// releaseAtLeast is the least that a release at one node may take, see releaseTimeout.
	releaseAtLeast = 2 * time.Second
	// settle is after how long a release is repeated that had no answer, or whose claim had none:
	// the claim can arrive after the release. mostRepeats is how many are repeated at the same
	// time. The others end with their TTL.
	settle      = 500 * time.Millisecond
	mostRepeats = 1000
)

// releaseTimeout bounds a release at one node for which no caller waits.
func releaseTimeout(ttl time.Duration) time.Duration { return max(ttl/3, releaseAtLeast) }

// A releasing is the release of one claim at all nodes at once.
type releasing struct {
	locker *Locker
	claim  driver.Claim
	after  driver.After
	turns  *claim
	call   callContext
	asks   []releaseAsk // by node

	mu         sync.Mutex
	waiter     *waiter // of the caller, while it waits
	held, gone int     // nodes that have released it, and that did not hold it
	pending    int     // nodes that have not answered
}

// A releaseAsk is the request of a releasing to one node.
type releaseAsk struct {
	of   *releasing
	node *node
	sent time.Time
	err  error // the releasing's mu guards it
}

// Release implements driver.Locker. It goes to all nodes, and returns when a majority has
// confirmed it.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, driver.NewStoreError("redlock", driver.OpRelease, c.Key, err)
	}
	// it is the caller's, and a slow node may read it after the caller has left
	after.Record = bytes.Clone(after.Record)
	turns := l.claims.enter(c.ID)
	defer l.claims.leave(turns)
	l.claims.setReleased(turns, true)
	r := &releasing{
		locker: l, claim: c, after: after, turns: turns, asks: make([]releaseAsk, len(l.nodes)),
		waiter: l.newWaiter(), pending: len(l.nodes),
	}
	r.call.begin(ctx, max(c.TTL, releaseAtLeast), len(l.nodes))
	for i, n := range l.nodes {
		r.asks[i] = releaseAsk{of: r, node: n, err: errSilent}
	}
	for i, n := range l.nodes {
		l.claims.inTurn(turns, n, &r.asks[i])
	}
	return r.await(ctx)
}

// start implements step.
func (a *releaseAsk) start() {
	r := a.of
	a.sent = time.Now()
	if err := a.node.begin(driver.OpRelease, r.claim.Key); err != nil {
		a.take(false, err)
		return
	}
	a.node.startRelease(&r.call, r.claim, r.after, a.answered)
}

func (a *releaseAsk) answered(held bool, err error) {
	a.node.ended(&a.of.call, driver.OpRelease, a.sent, err)
	a.take(held, err)
}

// take counts the node's answer.
func (a *releaseAsk) take(held bool, err error) {
	r := a.of
	r.mu.Lock()
	r.pending--
	switch a.err = err; {
	case err != nil:
	case held:
		r.held++
	default:
		r.gone++
	}
	if r.waiter != nil && r.decided() {
		r.waiter.wake()
	}
	r.mu.Unlock()
	if err != nil || r.locker.claims.isDoubtful(r.turns, a.node) {
		r.locker.releaseAgain(r.turns, a.node, r.claim, r.after)
	}
	r.call.answered()
	r.locker.claims.end(r.turns, a.node)
}

// decided reports whether a majority has confirmed the release, or denied it, or neither can come
// any more. r.mu must be held.
func (r *releasing) decided() bool {
	quorum, spare := r.locker.quorum, len(r.asks)-r.locker.quorum
	return r.held >= quorum || r.gone > spare || r.held+r.pending < quorum && r.gone+r.pending <= spare
}

// await returns the result once it is decided.
func (r *releasing) await(ctx context.Context) (bool, error) {
	_, _ = r.waiter.wait(ctx, nil) // if ctx has ended, the answers so far may still decide
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locker.free(r.waiter)
	r.waiter = nil // take wakes nobody from now on
	switch {
	case r.held >= r.locker.quorum:
		return true, nil
	case r.gone > len(r.asks)-r.locker.quorum:
		return false, nil
	}
	errs := make([]error, len(r.asks))
	for i := range r.asks {
		errs[i] = r.asks[i].err
	}
	return false, r.locker.noQuorum(driver.OpRelease, r.claim.Key, errs)
}

// releaseAt releases a claim at one node, in the background. The release goes before the calls
// that wait for that node, because the claim may have been made again. doubtful means that the
// claim may still arrive at the node.
func (l *Locker) releaseAt(turns *claim, n *node, c driver.Claim, doubtful bool) {
	undone := l.claims.undo(turns, n)
	l.claims.inNextTurn(turns, n, stepFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout(c.TTL))
		n.release(ctx, c, driver.After{}, func(_ bool, err error) {
			cancel()
			if err == nil {
				undone()
			} else {
				// turns, which is there as this call is under way
				l.claims.enter(c.ID)
				// it may arrive yet
				time.AfterFunc(settle, func() { undone(); l.claims.leave(turns) })
			}
			if err != nil || doubtful {
				l.releaseAgain(turns, n, c, driver.After{})
			}
			l.claims.end(turns, n)
		})
	}))
}

// releaseAgain repeats a release at one node after some time, in the background, unless the claim
// is made again.
func (l *Locker) releaseAgain(turns *claim, n *node, c driver.Claim, after driver.After) {
	if l.repeating.Add(1) > mostRepeats {
		l.repeating.Add(-1)
		return
	}
	c.Repeated = true
	l.claims.enter(c.ID) // turns, which is there as a call of its is under way
	time.AfterFunc(min(settle, c.TTL), func() {
		defer l.claims.leave(turns)
		defer l.repeating.Add(-1)
		l.claims.inTurn(turns, n, stepFunc(func() {
			if !l.claims.isReleased(turns) {
				l.claims.end(turns, n)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout(c.TTL))
			n.release(ctx, c, after, func(bool, error) {
				cancel()
				l.claims.end(turns, n)
			})
		}))
	})
}
