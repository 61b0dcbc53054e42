package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// A node that has not answered any of at least stuckCalls calls for stuckFor is not asked
	// until it has answered one, or until they have timed out. Otherwise calls to a frozen server
	// would pile up. If more nodes are stuck than may fail, all are asked: this process may be
	// slow, and callers that wait for a majority bound their calls themselves. A stuck node gets a
	// call each stuckPause, because only the connections of the others may be dead.
	stuckCalls = 16
	stuckFor   = 500 * time.Millisecond
	stuckPause = time.Second
)

var errStuck = errors.New("it has not answered for some time")

// A node is one of the stores of a quorum.
type node struct {
	driver.Locker
	index   int
	name    string // for errors
	addr    string // for hooks
	facts   driver.Description
	batch   driver.BatchRenewer // nil if it has no such ability
	starter driver.Starter      // nil if it has no such ability
	quorum  *Locker

	epoch    time.Time
	asked    atomic.Int64 // calls under way
	answered atomic.Int64 // when a call ended, or began that was the only one, since the epoch
	tried    atomic.Int64 // when a call was made although the node was stuck, since the epoch
}

func newNode(of *Locker, i int, l driver.Locker) *node {
	n := &node{Locker: l, quorum: of, index: i, name: fmt.Sprintf("node %d", i+1), facts: driver.Describe(l), epoch: time.Now()}
	n.addr = cmp.Or(n.facts.Addr, n.name)
	n.batch, _ = l.(driver.BatchRenewer)
	n.starter, _ = l.(driver.Starter)
	return n
}

// begin counts a call, unless the node is stuck. The caller must call end.
func (n *node) begin(op driver.Op, key string) error {
	if n.asked.Add(1) == 1 {
		n.answered.Store(int64(time.Since(n.epoch)))
	}
	if n.stuck() && n.quorum.canSpareStuck() && !n.tryStuck() {
		n.asked.Add(-1)
		return n.named(op, key, errStuck)
	}
	return nil
}

func (n *node) stuck() bool {
	return n.asked.Load() > stuckCalls && time.Since(n.epoch)-time.Duration(n.answered.Load()) > stuckFor
}

// tryStuck reports whether a stuck node is to get a call.
func (n *node) tryStuck() bool {
	now, last := time.Since(n.epoch), n.tried.Load()
	since := time.Duration(max(last, n.answered.Load()))
	return now-since >= stuckPause && n.tried.CompareAndSwap(last, int64(now))
}

// canSpareStuck reports whether a majority is not stuck.
func (l *Locker) canSpareStuck() bool {
	stuck := 0
	for _, n := range l.nodes {
		if n.stuck() {
			stuck++
		}
	}
	return len(l.nodes)-stuck >= l.quorum
}

func (n *node) end(err error) {
	n.asked.Add(-1)
	if err == nil {
		n.answered.Store(int64(time.Since(n.epoch)))
	}
}

// report reports a call to the hooks that was sent at the instant and returned err.
func (n *node) report(ctx context.Context, op driver.Op, sent time.Time, err error) {
	for _, call := range n.quorum.calls {
		func() {
			defer func() { _ = recover() }() // a hook only reports
			call(ctx, guard.CallEvent{Event: guard.Event{Start: sent}, Op: op, Node: n.addr, Duration: time.Since(sent), Err: err})
		}()
	}
}

// A request is a call to the node whose answer comes later.
type request[T any] struct {
	ctx      context.Context
	node     *node
	op       driver.Op
	sent     time.Time
	begun    bool
	answered atomic.Bool
	done     func(r *request[T], answer T, err error)
}

// newRequest returns a request that answer ends, or nil if the node is stuck, after calling done.
func newRequest[T any](ctx context.Context, n *node, op driver.Op, key string, done func(*request[T], T, error)) *request[T] {
	r := &request[T]{ctx: ctx, node: n, op: op, sent: time.Now(), done: done}
	if err := n.begin(op, key); err != nil {
		var none T
		done(r, none, err)
		return nil
	}
	return r
}

// answer passes the first answer on, and reports it to the hooks.
func (r *request[T]) answer(answer T, err error) {
	if r.answered.CompareAndSwap(false, true) {
		r.node.end(err)
		r.node.report(r.ctx, r.op, r.sent, err)
		r.done(r, answer, err)
	}
}

// contain answers a request that could not begin: the node's Locker has panicked, or has ended the
// goroutine. It is deferred.
func (r *request[T]) contain() {
	var none T
	if p := recover(); p != nil {
		r.answer(none, &contain.Panic{Value: p})
	} else if !r.begun {
		r.answer(none, contain.ErrEnded)
	}
}

// acquire asks for the key and calls done with the answer, from any goroutine.
func (n *node) acquire(ctx context.Context, c *driver.Claim, done func(*request[driver.Answer], driver.Answer, error)) {
	r := newRequest(ctx, n, driver.OpAcquire, c.Key, done)
	switch {
	case r == nil:
	case n.starter == nil:
		go contain.Call(func() (driver.Answer, error) { return n.TryAcquire(ctx, *c) }, r.answer)
	default:
		defer r.contain()
		n.starter.StartAcquire(ctx, *c, r.answer)
		r.begun = true
	}
}

// release releases the claim and calls done with the answer, from any goroutine.
func (n *node) release(
	ctx context.Context, c *driver.Claim, after driver.After, done func(r *request[bool], held bool, err error),
) {
	r := newRequest(ctx, n, driver.OpRelease, c.Key, done)
	switch {
	case r == nil:
	case n.starter == nil:
		go contain.Call(func() (bool, error) { return n.Release(ctx, *c, after) }, r.answer)
	default:
		defer r.contain()
		n.starter.StartRelease(ctx, *c, after, r.answer)
		r.begun = true
	}
}

// renew renews the claim and calls done with the answer, from another goroutine.
func (n *node) renew(ctx context.Context, c driver.Claim, done func(held bool, err error)) {
	n.renewBatch(ctx, []driver.Claim{c}, func(_ int, held bool, err error) { done(held, err) })
}

// renewBatch renews the claims and calls report once for each, from other goroutines.
func (n *node) renewBatch(ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error)) {
	if err := n.begin(driver.OpRenew, claims[0].Key); err != nil {
		go reportAll(claims, err, report)
		return
	}
	if n.batch == nil || len(claims) == 1 {
		var left atomic.Int32
		left.Store(int32(len(claims)))
		for i, c := range claims {
			sent := time.Now()
			go contain.Call(func() (bool, error) { return n.Renew(ctx, c) }, func(held bool, err error) {
				if left.Add(-1) == 0 {
					n.end(ctx.Err())
				}
				n.report(ctx, driver.OpRenew, sent, orLost(c, held, err))
				report(i, held, err)
			})
		}
		return
	}
	go func() {
		var failed atomic.Pointer[error] // one of them
		sent := time.Now()
		ended := sync.OnceFunc(func() {
			n.end(ctx.Err())
			n.report(ctx, driver.OpRenew, sent, errorIn(&failed))
		})
		defer ended()
		contain.Batch(len(claims), errSilent, func(i int, held bool, err error) {
			if err := orLost(claims[i], held, err); err != nil {
				failed.Store(&err)
			}
			report(i, held, err)
		}, func(report func(i int, held bool, err error)) {
			n.batch.RenewBatch(ctx, claims, report)
			ended() // before those that it has left out
		})
	}()
}

// orLost returns err, or a *guard.LostError if the node has forgotten the claim.
func orLost(c driver.Claim, held bool, err error) error {
	if err == nil && !held {
		return &guard.LostError{Key: c.Key, Fence: c.Fence, Reason: guard.LossNotHeld}
	}
	return err
}

func errorIn(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func reportAll(claims []driver.Claim, err error, report func(i int, held bool, err error)) {
	for i := range claims {
		report(i, false, err)
	}
}

// askAbility asks a node for what only some backends can do.
func askAbility[A, T any](
	ctx context.Context, n *node, op driver.Op, key string, ask func(context.Context, A) (T, error),
) (value T, err error) {
	a, ok := n.Locker.(A)
	if !ok {
		return value, &driver.StoreError{Backend: n.name, Op: op, Key: key, Kind: driver.KindUnsupported, Err: unsupported[op]}
	}
	if err = n.begin(op, key); err != nil {
		return value, err
	}
	value, err = contain.Do(func() (T, error) { return ask(ctx, a) })
	n.end(err)
	return value, err
}
