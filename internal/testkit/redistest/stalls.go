package redistest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Stalls watches for how long the machine did not let this process run, so that a test which says
// how long something may take does not blame the code for a machine that is busy with other
// things. All methods may be called from any goroutine.
type Stalls struct {
	cancel  context.CancelFunc
	watches sync.WaitGroup

	mu     sync.Mutex
	stalls [][]stall // by thread
}

// A stall is by how much a thread woke too late.
type stall struct {
	until time.Time
	late  time.Duration
}

const (
	nap      = time.Millisecond
	punctual = 2 * time.Millisecond // what a wake-up may be late on an idle machine
)

// WatchStalls watches until Stop, on a thread for each that can run Go code, as one of them may be
// held up while the others are not.
func WatchStalls() *Stalls {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stalls{cancel: cancel, stalls: make([][]stall, runtime.GOMAXPROCS(0))}
	for thread := range s.stalls {
		s.watches.Go(func() { s.watch(ctx, thread) })
	}
	return s
}

// Stop ends it. What was seen stays.
func (s *Stalls) Stop() {
	s.cancel()
	s.watches.Wait()
}

func (s *Stalls) watch(ctx context.Context, thread int) {
	runtime.LockOSThread() // ends with the goroutine
	for ctx.Err() == nil {
		due := time.Now().Add(nap)
		time.Sleep(nap) // it is the time that this takes which is looked at
		now := time.Now()
		if late := now.Sub(due); late > punctual {
			s.mu.Lock()
			s.stalls[thread] = append(s.stalls[thread], stall{now, late})
			s.mu.Unlock()
		}
	}
}

// Since returns for how long a thread was held up since then, of the one for which that was
// longest.
func (s *Stalls) Since(start time.Time) (longest time.Duration) {
	time.Sleep(2 * nap) // a stall that has just ended is yet to be noted
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stalls := range s.stalls {
		var total time.Duration
		for _, one := range stalls {
			if one.until.After(start) {
				total += min(one.late, one.until.Sub(start))
			}
		}
		longest = max(longest, total)
	}
	return longest
}

// Within fails the test unless f returns within d, not counting for how long the machine held this
// process up.
func Within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	stalls := WatchStalls()
	defer stalls.Stop()
	start := time.Now()
	f()
	took := time.Since(start)
	if took < d {
		return
	}
	if held := stalls.Since(start); took-held >= d {
		t.Fatalf("%s took %v, of which the machine held us up for %v: it should take less than %v", what, took, held, d)
	}
}
