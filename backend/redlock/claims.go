package redlock

import "sync"

// claims are those for which calls to nodes are under way.
type claims struct {
	mu sync.Mutex
	of map[string]*claim // by ID
}

// A claim puts the calls for one claim at one node in order, as what a later one is to undo has to have been done.
type claim struct {
	id string

	// claims.mu guards what follows.
	users    int
	last     []chan struct{} // for each node: closed when the last call so far has ended; nil if there was none
	doubtful []bool          // for each node: a call to take the claim in again had no answer
	released bool            // it is not to be taken in again
}

// enter returns the claim of that ID. leave has to follow.
func (s *claims) enter(id string, nodes int) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[id]
	if c == nil {
		c = &claim{id: id, last: make([]chan struct{}, nodes), doubtful: make([]bool, nodes)}
		s.of[id] = c
	}
	c.users++
	return c
}

func (s *claims) leave(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users--
	if c.users == 0 {
		delete(s.of, c.id)
	}
}

// setReleased says whether the claim's release has begun.
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

// doubt notes that a node may or may not have taken the claim in again.
func (s *claims) doubt(c *claim, node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.doubtful[node] = true
}

func (s *claims) isDoubtful(c *claim, node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.doubtful[node]
}

// inTurn runs f in a goroutine, after the calls that went to the node before for this claim.
func (s *claims) inTurn(c *claim, node int, f func()) {
	ended := make(chan struct{})
	s.mu.Lock()
	c.users++
	before := c.last[node]
	c.last[node] = ended
	s.mu.Unlock()
	go func() {
		if before != nil {
			<-before
		}
		f()
		close(ended)
		s.leave(c)
	}()
}
