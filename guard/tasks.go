package guard

import (
	"context"
	"sync"
	"time"
)

// drainTime is how long Close waits for a store that does not answer if its context has no
// deadline.
const drainTime = 5 * time.Second

// tasks are what Close waits for. They are safe for concurrent use.
type tasks struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n is 0; nil unless a goroutine waits
}

func (t *tasks) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += n
	if t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

func (t *tasks) start(f func()) {
	t.add(1)
	go func() {
		defer t.add(-1)
		f()
	}()
}

// count returns how many there are, and a channel that is closed when there is none.
func (t *tasks) count() (n int, zero <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	return t.n, t.zero
}

// await waits until there is none. It returns false if ctx ends before.
func (t *tasks) await(ctx context.Context) bool {
	for {
		n, zero := t.count()
		if n == 0 {
			return true
		}
		select {
		case <-zero:
		case <-ctx.Done():
			return false
		}
	}
}

// A serial calls functions one after the other, in a goroutine that ends when none is left. If one
// of them ends the goroutine, another goroutine goes on.
type serial struct {
	tasks *tasks

	mu      sync.Mutex
	waiting []func()
	running bool
}

// add has f called. s.mu must be held.
func (s *serial) add(f func()) {
	s.waiting = append(s.waiting, f)
	if !s.running {
		s.running = true
		s.tasks.start(s.run)
	}
}

func (s *serial) run() {
	finished := false
	defer func() {
		if !finished {
			s.tasks.start(s.run)
		}
	}()
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.running, s.waiting, finished = false, nil, true
			s.mu.Unlock()
			return
		}
		f := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		contain(f)
	}
}

func (s *serial) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// each calls f for 0 to n-1 at once, and returns when all have returned, or ended their
// goroutines. If one has panicked, so does each: a panic in a goroutine of ours would end the
// process.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	panics := make([]any, n)
	for i := range n {
		all.Go(func() {
			defer func() { panics[i] = recover() }()
			f(i)
		})
	}
	all.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
}
