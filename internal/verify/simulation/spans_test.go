package simulation_test

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A span is a time in which nobody may begin to run for a key, by what a run has left behind or
// has asked for. It is known when the run has ended, so what has begun before that is looked at
// then.
type span struct {
	invariant   string
	by          string
	from, until time.Time
}

// spans check what users see of done markers, minimum holds and ticks: that nothing runs in the
// time that they are for. They do not know what was asked of the store.
type spans struct {
	world *world

	mu      sync.Mutex
	closed  map[string]span        // by key: the last one
	begun   map[string][]beginning // by key
	records map[string]bool        // of the runs that were successful, with their keys
	stray   map[string]bool        // keys of which a release had no answer
}

// A beginning is when a run has begun, and when the lease was asked for under which it did so: the
// answer may have taken long.
type beginning struct {
	at, asked time.Time
	by        string
}

func newSpans(w *world) *spans {
	return &spans{world: w, closed: map[string]span{}, begun: map[string][]beginning{}, records: map[string]bool{}, stray: map[string]bool{}}
}

// begin notes that somebody begins to run for the key, under a lease that was asked for at an
// instant.
func (s *spans) begin(key, by string, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := beginning{time.Now(), asked, by}
	s.begun[key] = append(s.begun[key], now)
	s.check(key, s.closed[key], now)
}

// close notes that nobody was to begin for the key after an instant and before another one.
func (s *spans) close(key string, closed span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed[key] = closed
	for _, b := range s.begun[key] {
		s.check(key, closed, b)
	}
}

// check checks one beginning. A server that has lost something may have lost the marker, or the
// lease before the other one was granted. s.mu must be held.
func (s *spans) check(key string, closed span, b beginning) {
	since := closed.from
	if b.asked.Before(since) {
		since = b.asked
	}
	if b.at.After(closed.from) && b.at.Before(closed.until) && !s.world.disturbedSince(since) {
		s.world.violate(closed.invariant, "%s runs for %s again, %v after %s, and %v too early",
			b.by, key, b.at.Sub(closed.from), closed.by, closed.until.Sub(b.at))
	}
}

// successful notes that a run for the key has been, and leaves a record. Whether that arrives is
// another thing.
func (s *spans) successful(key, record string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[key+" "+record] = true
}

// was reports whether there was a run for the key that was successful.
func (s *spans) was(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[key+" "]
}

// checkDone checks that a successful run for the key has left the record.
func (s *spans) checkDone(key, record, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.tally.done.Add(1)
	if !s.records[key+" "+record] {
		s.world.violate("once", "%s got the answer that %s is done, with the record %q, which no successful run has left", who, key, record)
	}
}

// unanswered notes that a release of the key had no answer: what it was to leave may be missing.
func (s *spans) unanswered(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stray[key] = true
}

func (s *spans) answered(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stray[key]
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
