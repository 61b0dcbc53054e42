package redlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// seats notes who has which seat of a key.
type seats struct {
	mu     sync.Mutex
	taken  map[int]*guard.Lease
	fences map[int]uint64
	wrong  []string
	runs   int
}

func (s *seats) run(ctx context.Context) error {
	lease, _ := guard.FromContext(ctx)
	seat := lease.Seat()
	s.mu.Lock()
	s.runs++
	switch {
	case seat < 1 || seat > 3:
		s.wrong = append(s.wrong, "a seat that is none")
	case s.taken[seat] != nil && s.taken[seat].Valid():
		s.wrong = append(s.wrong, "two have one seat")
	case lease.Fence() <= s.fences[seat]:
		s.wrong = append(s.wrong, "the fence of a seat has not grown")
	}
	s.taken[seat], s.fences[seat] = lease, max(s.fences[seat], lease.Fence())
	s.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[seat] == lease { // otherwise the lease was lost
		s.taken[seat] = nil
	}
	return nil
}

// Twelve processes want one of three seats on five servers, of which two die.
func TestLong_seatsOfAKeyThatManyProcessesWant(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	servers := redistest.StartN(t, 5)
	var calls atomic.Int64
	count := guard.Hook{Call: func(context.Context, guard.Event) { calls.Add(1) }}
	ctx, stop := context.WithCancel(t.Context())
	s := &seats{taken: map[int]*guard.Lease{}, fences: map[int]uint64{}}
	var all sync.WaitGroup
	for range 12 {
		var nodes []guard.Locker
		for _, server := range servers {
			nodes = append(nodes, single.New(server.Client(t)))
		}
		g := newGuard(t, redlock.New(nodes, redlock.WithHook(count)), guard.WithTTL(10*time.Second))
		all.Go(func() {
			for ctx.Err() == nil {
				err := g.Do(ctx, "k", s.run, guard.WithLimit(3), guard.WithWait(guard.Forever))
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	report := func(while string, before int, since int64) int {
		const enough = 50
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.runs-before >= enough
		}, 30*time.Second, 10*time.Millisecond, "processes run, one after the other")
		s.mu.Lock()
		defer s.mu.Unlock()
		runs, scripts := s.runs-before, calls.Load()-since
		t.Logf("%s: %d runs, %.1f scripts for each", while, runs, float64(scripts)/float64(runs))
		require.Empty(t, s.wrong)
		require.LessOrEqual(t, scripts, int64(60*runs), "scripts; 10 are needed for a run")
		return s.runs
	}
	before := report("five servers", 0, 0)
	servers[1].Kill()
	servers[3].Kill()
	report("three of five servers", before, calls.Load())
	stop()
	all.Wait()
	require.Empty(t, s.wrong)
}
