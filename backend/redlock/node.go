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
	starter driver.Starter
	batch   driver.BatchRenewer
	locker  *Locker

	epoch    time.Time
	asked    atomic.Int64 // calls under way
	answered atomic.Int64 // when a call ended, or began that was the only one, since the epoch
	tried    atomic.Int64 // when a call was made although the node was stuck, since the epoch
}

func newNode(of *Locker, i int, l driver.Locker) *node {
	n := &node{Locker: l, locker: of, index: i, name: fmt.Sprintf("node %d", i+1), facts: driver.Describe(l), epoch: time.Now()}
	n.addr = cmp.Or(n.facts.Addr, n.name)
	n.starter, n.batch = blocking{l}, blocking{l}
	if starter, ok := l.(driver.Starter); ok {
		n.starter = starter
	}
	if batch, ok := l.(driver.BatchRenewer); ok {
		n.batch = batch
	}
	return n
}

// begin counts a call, unless the node is stuck. The caller must call end.
func (n *node) begin(op driver.Op, key string) error {
	if n.asked.Add(1) == 1 {
		n.answered.Store(int64(time.Since(n.epoch)))
	}
	if n.stuck() && n.locker.canSpareStuck() && !n.tryStuck() {
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
	if err == nil || errors.Is(err, guard.ErrLost) {
		n.answered.Store(int64(time.Since(n.epoch)))
	}
}

// report reports a call to the hooks that was sent at the instant and returned err.
func (n *node) report(ctx context.Context, op driver.Op, sent time.Time, err error) {
	for _, call := range n.locker.calls {
		func() {
			defer func() { _ = recover() }() // a hook only reports
			call(ctx, guard.CallEvent{Event: guard.Event{Start: sent}, Op: op, Node: n.addr, Duration: time.Since(sent), Err: err})
		}()
	}
}

// A request is a call to a node whose answer comes later.
type request[T any] struct {
	reply[T]
	ctx      context.Context
	op       driver.Op
	answered atomic.Bool
	done     func(reply[T])
}

// call starts a call to the node, and calls done with its first answer. start is given the
// function that answers.
func call[T any](ctx context.Context, n *node, op driver.Op, key string, start func(func(T, error)), done func(reply[T])) {
	r := &request[T]{reply: reply[T]{node: n, sent: time.Now()}, ctx: ctx, op: op, done: done}
	if r.err = n.begin(op, key); r.err != nil {
		done(r.reply)
		return
	}
	contain.Call(func() (none T, _ error) { start(r.answer); return none, nil }, func(none T, err error) {
		if err != nil { // it could not begin
			r.answer(none, err)
		}
	})
}

// answer passes the first answer on, and reports it to the hooks.
func (r *request[T]) answer(value T, err error) {
	if r.answered.CompareAndSwap(false, true) {
		r.node.end(err)
		r.node.report(r.ctx, r.op, r.sent, err)
		r.value, r.err = value, err
		r.done(r.reply)
	}
}

// acquire asks for the key and calls done with the reply, from any goroutine.
func (n *node) acquire(ctx context.Context, c *driver.Claim, done func(vote)) {
	call(ctx, n, driver.OpAcquire, c.Key, func(answer func(driver.Answer, error)) { n.starter.StartAcquire(ctx, *c, answer) }, done)
}

// release releases the claim and calls done with the reply, from any goroutine.
func (n *node) release(ctx context.Context, c *driver.Claim, after driver.After, done func(reply[bool])) {
	call(ctx, n, driver.OpRelease, c.Key, func(answer func(bool, error)) { n.starter.StartRelease(ctx, *c, after, answer) }, done)
}

// A blocking Locker has the abilities of a node by a goroutine for each call.
type blocking struct{ driver.Locker }

// StartAcquire implements driver.Starter.
func (l blocking) StartAcquire(ctx context.Context, c driver.Claim, done func(driver.Answer, error)) {
	go contain.Call(func() (driver.Answer, error) { return l.TryAcquire(ctx, c) }, done)
}

// StartRelease implements driver.Starter.
func (l blocking) StartRelease(ctx context.Context, c driver.Claim, after driver.After, done func(bool, error)) {
	go contain.Call(func() (bool, error) { return l.Release(ctx, c, after) }, done)
}

// RenewBatch implements driver.BatchRenewer.
func (l blocking) RenewBatch(ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error)) {
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() {
			contain.Call(func() (bool, error) { return l.Renew(ctx, c) }, func(held bool, err error) { report(i, held, err) })
		})
	}
	all.Wait()
}

// renewBatch renews the claims. It calls report once for each, from any goroutine. Then it calls
// done, with an error if not all are renewed.
func (n *node) renewBatch(
	ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error), done func(reply[struct{}]),
) {
	batch := n.batch
	if len(claims) == 1 {
		batch = blocking{n.Locker} // it costs less
	}
	begun := false
	call(ctx, n, driver.OpRenew, claims[0].Key, func(answer func(struct{}, error)) {
		begun = true
		go contain.Call(func() (struct{}, error) {
			var failed atomic.Pointer[error] // one of them
			contain.Batch(len(claims), errSilent, func(i int, held bool, err error) {
				if err := orLost(claims[i], held, err); err != nil {
					failed.Store(&err)
				}
				report(i, held, err)
			}, func(report func(i int, held bool, err error)) { batch.RenewBatch(ctx, claims, report) })
			if err := failed.Load(); err != nil {
				return struct{}{}, *err
			}
			return struct{}{}, nil
		}, answer)
	}, func(r reply[struct{}]) {
		for i := range claims {
			if !begun {
				report(i, false, r.err)
			}
		}
		done(r)
	})
}

// orLost returns err, or a *guard.LostError if the node has forgotten the claim.
func orLost(c driver.Claim, held bool, err error) error {
	if err == nil && !held {
		return &guard.LostError{Key: c.Key, Fence: c.Fence, Reason: guard.LossNotHeld}
	}
	return err
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
