package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// errTooLate is a majority that has granted when there was nothing left of the TTL.
var errTooLate = errors.New("a majority has granted it too late")

// errGone is a node that has lost the claim before the ballot was over.
var errGone = errors.New("it has lost the claim again")

// A ballot is one claim put to all nodes at once.
type ballot struct {
	locker *Locker
	claim  guard.Claim
	turns  *claim
	start  time.Time
	news   chan struct{} // a vote has come

	mu      sync.Mutex
	votes   []vote // in the order in which they came, until it is lost
	outcome outcome
	fence   uint64 // if it is won
}

type outcome uint8

const (
	open outcome = iota
	won
	lost
)

// TryAcquire implements guard.Locker. The claim is granted if a majority has granted it while the TTL lasts.
func (l *Locker) TryAcquire(ctx context.Context, c guard.Claim) (guard.Grant, error) {
	if err := ctx.Err(); err != nil {
		return guard.Grant{}, guard.NewStoreError("redlock", guard.OpAcquire, c.Key, err)
	}
	if err := l.meet(ctx, c.Key); err != nil {
		return guard.Grant{}, err
	}
	turns := l.claims.enter(c.ID)
	defer l.claims.leave(turns)
	l.claims.setReleased(turns, false)
	if c.Fence == 0 {
		c.Hint = l.clocks.hint(l.quorum)
	}
	b := &ballot{
		locker: l, claim: c, turns: turns, start: time.Now(),
		news: make(chan struct{}, 1), votes: make([]vote, 0, len(l.nodes)),
	}
	b.open(ctx)
	t, err := b.await(ctx)
	if err == nil && t.verdict == granted {
		if err = b.win(ctx, t); err == nil {
			return guard.Grant{State: guard.Granted, Fence: t.fence, Held: t.held}, nil
		}
	}
	b.lose()
	var failed *guard.StoreError
	if errors.As(err, &failed) {
		failed.Over = true
	}
	return t.refusal, err
}

// open sends the claim to the nodes.
func (b *ballot) open(ctx context.Context) {
	l := b.locker
	call, cancel := detached(ctx, b.claim.TTL)
	last := lastOf(len(l.nodes), cancel)
	for _, n := range l.nodes {
		l.claims.inTurn(b.turns, n, func(end func()) {
			sent := l.clocks.now()
			n.acquire(call, b.claim, func(grant guard.Grant, err error) {
				if err == nil {
					l.clocks.observe(n.index, grant.Clock, sent)
				}
				b.take(vote{n, grant, err})
				last()
				end()
			})
		})
	}
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

// take takes a vote. One that comes when the ballot is over is put right: a node must not hold what is not wanted.
func (b *ballot) take(v vote) {
	b.mu.Lock()
	over, fence := b.outcome, b.fence
	if over != lost {
		b.votes = append(b.votes, v)
	}
	b.mu.Unlock()
	switch over {
	case open:
		select {
		case b.news <- struct{}{}:
		default:
		}
	case won:
		b.undoAbove(v, fence)
		b.locker.claims.hear(b.turns, v.node)
	case lost:
		b.undo(v)
	}
}

// await returns the count of the votes once it is decided.
func (b *ballot) await(ctx context.Context) (tally, error) {
	var patience <-chan time.Time
	hasty := false
	for {
		select {
		case <-b.news:
		case <-patience:
			hasty = true
		case <-ctx.Done():
			return tally{}, b.error(ctx)
		}
		b.mu.Lock()
		t := b.locker.count(b.votes, hasty)
		b.mu.Unlock()
		switch t.verdict {
		case granted, refused:
			return t, nil
		case failed:
			return tally{}, b.error(ctx)
		case hesitant:
			if patience == nil {
				timer := time.NewTimer(5*time.Millisecond + 2*time.Since(b.start))
				defer timer.Stop()
				patience = timer.C
			}
		case undecided:
		}
	}
}

// error returns why there is no majority, or that the caller has gone.
func (b *ballot) error(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return guard.NewStoreError("redlock", guard.OpAcquire, b.claim.Key, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := silentAll(b.locker.nodes)
	for _, v := range b.votes {
		errs[v.node.index] = v.err
	}
	return b.locker.noQuorum(guard.OpAcquire, b.claim.Key, errs)
}

// win ends a ballot that the claim has won, once a majority has its fence.
func (b *ballot) win(ctx context.Context, t tally) error {
	b.mu.Lock()
	b.outcome, b.fence = won, t.fence
	votes := b.votes // take sees to those that come from now on
	b.locker.claims.hearOnly(b.turns, votes)
	b.mu.Unlock()
	var lower []*node
	have := 0
	for _, v := range votes {
		switch {
		case v.err != nil || v.grant.State != guard.Granted:
		case v.grant.Fence < t.fence:
			lower = append(lower, v.node)
		case v.grant.Fence == t.fence:
			have++
		default:
			b.undoAbove(v, t.fence)
		}
	}
	if have < b.locker.quorum {
		if err := b.raise(ctx, t.fence, have, lower); err != nil {
			return err
		}
	}
	if time.Since(b.start) > b.claim.TTL-drift(b.claim.TTL) {
		return &guard.StoreError{Store: "redlock", Op: guard.OpAcquire, Key: b.claim.Key, Kind: guard.KindTimeout, Err: errTooLate}
	}
	return nil
}

// raise gives the fence to nodes that have granted a lower one, until a majority has it: whatever majority grants the key
// next has one of these in it, and with it a higher fence.
func (b *ballot) raise(ctx context.Context, fence uint64, have int, lower []*node) error {
	l := b.locker
	c := b.claim
	c.Fence = fence
	call, cancel := detached(ctx, c.TTL)
	last := lastOf(len(lower), cancel)
	type answer struct {
		node *node
		err  error
	}
	answers := make(chan answer, len(lower))
	for _, n := range lower {
		l.claims.inTurn(b.turns, n, func(end func()) {
			n.renew(call, c, func(held bool, err error) {
				if err == nil && !held {
					err = errGone
				}
				answers <- answer{n, err}
				last()
				end()
			})
		})
	}
	errs := make([]error, len(l.nodes)) // those of nodes that have answered
	for pending := len(lower); have+pending >= l.quorum; pending-- {
		select {
		case a := <-answers:
			if errs[a.node.index] = a.err; a.err == nil {
				have++
			}
		case <-ctx.Done():
			return guard.NewStoreError("redlock", guard.OpAcquire, c.Key, ctx.Err())
		}
		if have >= l.quorum {
			return nil
		}
	}
	return l.noQuorum(guard.OpAcquire, c.Key, errs)
}

// lose ends a ballot that is lost: what was granted, or may have been, is given back.
func (b *ballot) lose() {
	b.locker.claims.setReleased(b.turns, true)
	b.mu.Lock()
	b.outcome = lost
	votes := b.votes // those of a win that failed, too; take sees to those that come from now on
	b.mu.Unlock()
	for _, v := range votes {
		b.undo(v)
	}
}

// undo gives back what a node has granted, or may have.
func (b *ballot) undo(v vote) {
	if v.err != nil || v.grant.State == guard.Granted {
		b.locker.giveBack(b.turns, v.node, b.claim, v.err != nil)
	}
}

// undoAbove gives back what was granted with a fence above the claim's, which would mislead those who join, and has the node
// take it in again under that fence. A lower one is raised by the next renewal. Where the claim's release has begun, that
// sees to it, with what it leaves behind.
func (b *ballot) undoAbove(v vote, fence uint64) {
	l := b.locker
	if v.err != nil || v.grant.State != guard.Granted || v.grant.Fence <= fence || l.claims.isReleased(b.turns) {
		return
	}
	l.giveBack(b.turns, v.node, b.claim, false)
	c := b.claim
	c.Fence, c.Hint = fence, 0
	l.takeIn(b.turns, v.node, c)
}
