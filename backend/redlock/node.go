package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	index  int
	name   string // for errors
	addr   string // for hooks
	facts  driver.Description
	async  driver.Async
	locker *Locker

	epoch    time.Time
	asked    atomic.Int64 // calls under way
	answered atomic.Int64 // when a call ended, or began that was the only one, since the epoch
	tried    atomic.Int64 // when a call was made although the node was stuck, since the epoch
}

func newNode(of *Locker, i int, l driver.Locker) *node {
	n := &node{Locker: l, locker: of, index: i, name: fmt.Sprintf("node %d", i+1), facts: driver.Describe(l), async: driver.AsyncOf(l), epoch: time.Now()}
	n.addr = cmp.Or(n.facts.Addr, n.name)
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
	going := slices.DeleteFunc(slices.Clone(l.nodes), (*node).stuck)
	return len(going) >= l.quorum
}

func (n *node) end(err error) {
	n.asked.Add(-1)
	if err == nil || errors.Is(err, guard.ErrLost) {
		n.answered.Store(int64(time.Since(n.epoch)))
	}
}

// ended counts out a request that has all its answers, and reports it to the hooks.
func (n *node) ended(r *request) {
	var err error
	if failed := r.failed.Load(); failed != nil {
		err = *failed
	}
	n.end(err)
	for _, call := range n.locker.hooks {
		func() {
			defer func() { _ = recover() }() // a hook only reports
			call(r.ctx, guard.CallEvent{Event: guard.Event{Start: r.sent}, Op: r.op, Node: n.addr, Duration: time.Since(r.sent), Err: err})
		}()
	}
}

// A request is one call to a node for each of some claims. The answers come later.
type request struct {
	node     *node
	ctx      context.Context
	op       driver.Op
	sent     time.Time
	claims   []driver.Claim
	answered []atomic.Bool
	room     [1]atomic.Bool        // so that a single claim needs no slice of its own
	open     atomic.Int32          // answers that have not come
	failed   atomic.Pointer[error] // one of the errors
	done     func(i int, v vote)
}

// start starts a call for each of the claims, with a request that has not been used. It calls done
// with the first reply to each, from any goroutine, and reports them to the hooks as one call.
func (n *node) start(
	ctx context.Context, r *request, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, v vote),
) {
	r.node, r.ctx, r.op, r.sent, r.claims, r.done = n, ctx, op, time.Now(), claims, done
	if r.answered = r.room[:]; len(claims) > 1 {
		r.answered = make([]atomic.Bool, len(claims))
	}
	r.open.Store(int32(len(claims)))
	if err := n.begin(op, claims[0].Key); err != nil {
		for i := range claims {
			done(i, vote{node: n, err: err})
		}
		return
	}
	contain.Call(func() (none driver.Answer, _ error) {
		n.async.Start(ctx, op, claims, after, r.answer)
		return none, nil
	}, func(none driver.Answer, err error) {
		for i := range claims {
			if err != nil { // it could not begin
				r.answer(i, none, err)
			}
		}
	})
}

// calls returns a function that starts one call for the claim at each node, and can be used once
// for each. The requests are one allocation.
func (l *Locker) calls(op driver.Op, c driver.Claim, after driver.After) func(context.Context, *node, func(int, vote)) {
	claims, requests := []driver.Claim{c}, make([]request, len(l.nodes))
	return func(ctx context.Context, n *node, done func(int, vote)) {
		n.start(ctx, &requests[n.index], op, claims, after, done)
	}
}

// answer passes on the first answer to a call. After the last one, it reports the request.
func (r *request) answer(i int, a driver.Answer, err error) {
	if !r.answered[i].CompareAndSwap(false, true) {
		return
	}
	failed := err
	if c := r.claims[i]; err == nil && r.op == driver.OpRenew && !a.Held {
		failed = &guard.LostError{Key: c.Key, Fence: c.Fence, Reason: guard.LossNotHeld}
	}
	if failed != nil {
		r.failed.Store(new(failed))
	}
	if err == nil {
		r.node.locker.clocks.observe(r.node.index, a.Clock, r.sent)
	}
	if r.open.Add(-1) == 0 {
		r.node.ended(r)
	}
	r.done(i, vote{node: r.node, value: a, err: err})
}
