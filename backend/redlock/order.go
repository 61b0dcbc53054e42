package redlock

import (
	"slices"
	"sync"
	"sync/atomic"
)

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
	// releasing is how many releases are under way, or may follow because a vote is outstanding.
	releasing atomic.Int32
	releases  atomic.Int32 // that have ended
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

// hasReleased notes that a release of the claim has ended.
func (t *turn) hasReleased() {
	t.releases.Add(1) // first, see keeps
	t.releasing.Add(-1)
}

// keeps reports whether a node that says it holds the claim will keep it: no release is under way
// there, none may follow, and none has ended since the given count.
func (t *turn) keeps(releases int32) bool {
	return t.releasing.Load() == 0 && t.releases.Load() == releases
}

// inTurn starts a call to the node for this claim after the calls before it have ended. The call
// must not block. When it has ended, end must be called.
func (o *callOrder) inTurn(n *node, call func(*node)) { o.enqueue(n, call, false) }

// inNextTurn is inTurn, but goes before the calls that wait: a call that undoes the call under way
// must not undo those.
func (o *callOrder) inNextTurn(n *node, call func(*node)) { o.enqueue(n, call, true) }

func (o *callOrder) enqueue(n *node, call func(*node), first bool) {
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
	at := &o.at[n.index]
	o.in.mu.Lock()
	o.drop()
	var next func(*node)
	if at.busy = len(at.next) > 0; at.busy {
		next, at.next = at.next[0], at.next[1:]
	}
	o.in.mu.Unlock()
	if next != nil {
		next(n)
	}
}
