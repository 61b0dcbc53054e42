package guardasynq

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A server is an asynq server whose Config went through Configure. It decides for which tasks a
// worker can be spared: a task that waits for its key occupies one, and so do tasks of other keys
// that could run.
type server struct {
	workers int
	returns time.Duration // asynq's intervals

	mu      sync.Mutex
	begun   int // tasks that asynq has given to workers
	entered int // those of them that came to a middleware
	busy    int // those of them that are still with it
	newest  time.Time
	held    time.Time
	waits   []*wait // in the order in which they began
}

// A wait is that of a task in its worker.
type wait struct {
	server *server
	cancel context.CancelFunc
	gone   bool // its worker was needed
}

type workerKey struct{}

// A worker has one task.
type worker struct {
	server  *server
	entered bool
}

// begin is called when asynq gives a task to a worker.
func (s *server) begin() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	s.newest = time.Now()
	return &worker{server: s}
}

// enter is called when a task comes to a middleware. It returns the server, which is nil if it was
// not configured, and what to call when the task leaves the middleware. A task counts once,
// however many middlewares it comes to.
func enter(ctx context.Context) (s *server, leave func()) {
	w, _ := ctx.Value(workerKey{}).(*worker)
	if w == nil {
		return nil, func() {}
	}
	s = w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.entered {
		return s, func() {}
	}
	w.entered = true
	s.entered++
	s.busy++
	return s, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}
}

// returnTime returns how long asynq takes to give a task to an idle worker when its time has come.
func (s *server) returnTime() time.Duration {
	if s == nil { // not configured, so not known
		return asynqDelayedTaskCheckInterval + asynqTaskCheckInterval
	}
	return s.returns
}

// hasRoom reports whether another worker has nothing to do, so that a task may wait in its own.
func (s *server) hasRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room()
}

// room is hasRoom with s.mu held. Handlers that are behind no middleware occupy workers, too, and
// do not say when they return. If the server has such handlers, a quarter of the workers has to be
// free. Without them, begun and entered differ only by tasks that are on their way.
func (s *server) room() bool {
	if s.begun-s.entered > s.workers {
		return 4*s.busy <= 3*s.workers
	}
	return s.busy < s.workers
}

// isIdle reports whether it has room, and asynq seems to have no other task for it.
func (s *server) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room() && time.Since(s.newest) > idleAfter
}

// idleAfter is much longer than asynq takes from one task to the next one, if there is one.
const idleAfter = 10 * time.Millisecond

// A server that has no room would postpone within milliseconds all tasks whose keys are busy,
// also those that other servers have room for. So it sometimes keeps one for as long as the others
// take to look for tasks. It does so for at most half of the time, because tasks that can run may
// be queued behind such tasks.
const (
	longestHold  = taskCheckInterval
	holdInterval = 2 * longestHold
)

// mayHold reports whether the last worker may keep a task whose key is busy for longestHold.
func (s *server) mayHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room() || time.Since(s.held) < holdInterval {
		return false
	}
	s.held = time.Now()
	return true
}

// wait begins a wait, which cancel ends.
func (s *server) wait(cancel context.CancelFunc) *wait {
	w := &wait{server: s, cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, w)
	return w
}

// end ends a wait, and reports whether the task had to leave its worker.
func (w *wait) end() (gone bool) {
	if w == nil {
		return false
	}
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = slices.DeleteFunc(s.waits, func(other *wait) bool { return other == w })
	return w.gone
}

// makeRoom is called when a run begins. If it has taken the last worker, the task that has waited
// for the shortest time leaves its own.
func (s *server) makeRoom() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room() || len(s.waits) == 0 {
		return
	}
	last := len(s.waits) - 1
	w := s.waits[last]
	s.waits = s.waits[:last]
	w.gone = true
	w.cancel()
}
