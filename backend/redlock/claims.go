package redlock

import (
	"slices"
	"sync"
)

// claims are the claims with calls to nodes under way.
type claims struct {
	nodes int

	mu sync.Mutex
	of map[string]*claim // by ID
}

// A claim puts the calls for one claim at one node in order: a call must end before a later call
// undoes it. claims.mu guards it.
type claim struct {
	id       string
	users    int
	at       []turn // by node
	released bool   // it must not be acquired again
}

type turn struct {
	busy     bool   // a call is under way
	next     []step // calls that wait for it
	doubtful bool   // a call to acquire the claim again had no answer
	// the claim was granted without this node's vote, which may have to be released
	unanswered bool
	undoing    int // how many of its releases are under way
	undone     int // how often it was released
}

func newClaims(nodes int) *claims { return &claims{nodes: nodes, of: map[string]*claim{}} }

// enter returns the claim of that ID. The caller must call leave.
func (s *claims) enter(id string) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[id]
	if c == nil {
		c = &claim{id: id, at: make([]turn, s.nodes)}
		s.of[id] = c
	}
	c.users++
	return c
}

func (s *claims) leave(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
}

// drop undoes one enter. s.mu must be held.
func (s *claims) drop(c *claim) {
	c.users--
	if c.users == 0 {
		delete(s.of, c.id)
	}
}

// setReleased sets whether the claim's release has begun.
func (s *claims) setReleased(c *claim, released bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.released = released
}

func (s *claims) isReleased(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.released
}

// doubt notes that a node may have acquired the claim again.
func (s *claims) doubt(c *claim, n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.at[n.index].doubtful = true
}

func (s *claims) isDoubtful(c *claim, n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.at[n.index].doubtful
}

// noteVotes notes that a ballot was won by these votes. The votes of the other nodes are still to
// come.
func (s *claims) noteVotes(c *claim, votes []vote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.at {
		c.at[i].unanswered = true
	}
	for _, v := range votes {
		c.at[v.node.index].unanswered = false
	}
}

// noteVote notes that the vote of a node has arrived after noteVotes was called.
func (s *claims) noteVote(c *claim, n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.at[n.index].unanswered = false
}

// undo notes that the claim will be released at a node. The note ends when the caller calls the
// function that undo returns.
func (s *claims) undo(c *claim, n *node) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.at[n.index].undoing++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.at[n.index].undoing--
		c.at[n.index].undone++
	}
}

// isUndoing reports whether a release of the claim is under way at a node, or may still arrive.
func (s *claims) isUndoing(c *claim, n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.at[n.index].undoing > 0
}

// undone returns how often the claim was released at each node.
func (s *claims) undone(c *claim) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := make([]int, s.nodes)
	for i := range times {
		times[i] = c.at[i].undone
	}
	return times
}

// stays reports whether a node that says it holds the claim will keep it. No release is under way
// there, none has happened since the given count, and its vote cannot lead to one.
func (s *claims) stays(c *claim, n *node, undone int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &c.at[n.index]
	return !at.unanswered && at.undoing == 0 && at.undone == undone
}

// A step is a call to one node for one claim. start must not block. When the call has ended,
// claims.end must be called.
type step interface{ start() }

type stepFunc func()

func (f stepFunc) start() { f() }

// inTurn starts a call to the node for this claim after the calls before it have ended.
func (s *claims) inTurn(c *claim, n *node, call step) { s.enqueue(c, n, call, false) }

// inNextTurn is inTurn, but goes before the calls that wait: a call that undoes the call under way
// must not undo those.
func (s *claims) inNextTurn(c *claim, n *node, call step) { s.enqueue(c, n, call, true) }

func (s *claims) enqueue(c *claim, n *node, call step, next bool) {
	s.mu.Lock()
	c.users++
	t := &c.at[n.index]
	waits := t.busy
	switch {
	case !waits:
		t.busy = true
	case next:
		t.next = slices.Insert(t.next, 0, call)
	default:
		t.next = append(t.next, call)
	}
	s.mu.Unlock()
	if !waits {
		call.start()
	}
}

// end ends the call to the node that is under way for this claim, and starts the next one.
func (s *claims) end(c *claim, n *node) {
	t := &c.at[n.index]
	s.mu.Lock()
	s.drop(c)
	var next step
	if t.busy = len(t.next) > 0; t.busy {
		next, t.next = t.next[0], t.next[1:]
	}
	s.mu.Unlock()
	if next != nil {
		next.start()
	}
}
