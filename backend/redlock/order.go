package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// errObsolete is the error of a call that was not made, see background.
var errObsolete = errors.New("the claim has been released, or made again")

// orders are the claims with calls to nodes under way.
type orders struct {
	nodes int

	mu sync.Mutex
	of map[string]*callOrder // by ID
}

// A callOrder puts the calls for one claim at each node in order: a call must end before a later
// call undoes it.
type callOrder struct {
	in       *orders
	id       string
	users    int         // orders.mu guards it
	released atomic.Bool // it must not be acquired again
	at       []turn
}

// A turn is the state of a claim at one node.
type turn struct {
	busy bool          // a call is under way; orders.mu guards it
	next []func(*node) // calls that wait for it; orders.mu guards it
	// unknown means that a call to acquire the claim again had no answer.
	unknown atomic.Bool
	// releasing is how many releases in the background are under way, and how many votes have not
	// arrived of ballots that were won: each may show that the claim has to be released here.
	releasing atomic.Int32
	releases  atomic.Int32 // in the background that have ended
}

func newOrders(nodes int) *orders { return &orders{nodes: nodes, of: map[string]*callOrder{}} }

// enter returns the order of the claim of that ID. The caller must call leave.
func (s *orders) enter(id string) *callOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.of[id]
	if o == nil {
		o = &callOrder{in: s, id: id, at: make([]turn, s.nodes)}
		s.of[id] = o
	}
	o.users++
	return o
}

func (o *callOrder) leave() {
	o.in.mu.Lock()
	defer o.in.mu.Unlock()
	o.drop()
}

// drop undoes one enter. orders.mu must be held.
func (o *callOrder) drop() {
	o.users--
	if o.users == 0 {
		delete(o.in.of, o.id)
	}
}

// after calls f after some time, and keeps the order until then.
func (o *callOrder) after(pause time.Duration, f func()) {
	o.in.enter(o.id)
	time.AfterFunc(pause, func() {
		defer o.leave()
		f()
	})
}

// hasReleased notes that a release of the claim has ended.
func (t *turn) hasReleased() {
	t.releases.Add(1) // before the next, see keeps
	t.releasing.Add(-1)
}

// keeps reports whether a node that says it holds the claim will keep it: no release is under way
// there, none may follow, and none has ended since the given count.
func (t *turn) keeps(releases int32) bool {
	return t.releasing.Load() == 0 && t.releases.Load() == releases
}

// start starts a call to the node, which must not block, after the calls for this claim that were
// started before it have ended. When it has ended, end must be called. A call that goes first only
// waits for the one under way: what undoes that one must not undo the others.
func (o *callOrder) start(n *node, first bool, call func(*node)) {
	o.in.mu.Lock()
	o.users++
	at := &o.at[n.index]
	waits := at.busy
	switch {
	case !waits:
		at.busy = true
	case first:
		at.next = slices.Insert(at.next, 0, call)
	default:
		at.next = append(at.next, call)
	}
	o.in.mu.Unlock()
	if !waits {
		call(n)
	}
}

// end ends the call to the node that is under way for this claim, and starts the next one.
func (o *callOrder) end(n *node) {
	o.in.mu.Lock()
	o.drop()
	var next func(*node)
	at := &o.at[n.index]
	if at.busy = len(at.next) > 0; at.busy {
		next, at.next = at.next[0], at.next[1:]
	}
	o.in.mu.Unlock()
	if next != nil {
		next(n)
	}
}

// ask calls the nodes for the claim, in its turn at each, and adds their replies to votes. The
// calls must not block. They go on after the caller has left, as long as detach says.
func (o *callOrder) ask(
	ctx context.Context, nodes []*node, longest time.Duration, votes *gathering[driver.Answer],
	call func(context.Context, *node, func(int, vote)),
) {
	calls := detach(ctx, longest, len(nodes))
	done := func(_ int, v vote) {
		defer o.end(v.node)
		votes.add(v)
		calls.ended()
	}
	start := func(n *node) { call(calls, n, done) }
	for _, n := range nodes {
		o.start(n, false, start)
	}
}

// background makes a call for which no caller waits, as long as detach says, and calls done with
// its reply. Unless it goes first, the call is obsolete if the claim has been released in the
// meantime, or made again.
func (o *callOrder) background(
	ctx context.Context, n *node, first bool, limit time.Duration, op driver.Op, c driver.Claim, after driver.After, done func(vote),
) {
	o.start(n, first, func(n *node) {
		calls := detach(ctx, limit, 1)
		ended := func(_ int, v vote) {
			defer o.end(n)
			calls.ended()
			done(v)
		}
		if releases := op == driver.OpRelease; !first && releases != o.released.Load() {
			ended(0, vote{node: n, err: errObsolete})
			return
		}
		n.start(calls, new(request), op, []driver.Claim{c}, after, ended)
	})
}
