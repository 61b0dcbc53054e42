package servers_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A process is what one process has: a Guard, and callers that run work again and again.
type process struct {
	guard   *guard.Guard
	referee *referee
	runs    atomic.Int64
	end     func()
}

// newProcess returns one that runs work under two keys until the test ends, or end is called.
func newProcess(t *testing.T, r *referee, locker guard.Locker) *process {
	t.Helper()
	g, err := guard.New(locker, guard.WithTTL(ttl))
	require.NoError(t, err)
	p := &process{guard: g, referee: r}
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for _, key := range []string{"a", "b"} {
		callers.Go(func() {
			for ctx.Err() == nil {
				p.run(ctx, key)
			}
		})
	}
	p.end = func() { cancel(); callers.Wait() }
	t.Cleanup(func() {
		p.end()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		assert.NoError(t, g.Close(ctx))
	})
	return p
}

// run runs work once. An error is that of a fault.
func (p *process) run(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	asked := time.Now()
	err := p.guard.Do(ctx, key, func(ctx context.Context) error {
		leave := p.referee.enter(key, guard.Fence(ctx), asked)
		defer leave()
		time.Sleep(time.Millisecond) // the work
		return nil
	}, guard.WithWait(time.Second))
	if err == nil {
		p.runs.Add(1)
	}
	time.Sleep(time.Millisecond) // so that the other process has its turns
}

// await returns how many runs there were, once there were at least n.
func (p *process) await(t *testing.T, n int64) int64 {
	t.Helper()
	require.Eventually(t, func() bool { return p.runs.Load() >= n }, soon, 5*time.Millisecond, "runs of a process")
	return p.runs.Load()
}

// A referee sees all runs of all processes.
type referee struct {
	split    time.Duration
	overlaps atomic.Int64
	inside   sync.Map // *atomic.Int64 by key

	mu     sync.Mutex
	runs   map[string][]run
	faults []string
}

// A run began at an instant, under a fence.
type run struct {
	began time.Time
	fence uint64
}

// enter notes that a run begins, and returns a function that notes its end. A claim must not have a
// smaller fence than a run that had begun when it was asked for.
func (r *referee) enter(key string, fence uint64, asked time.Time) (leave func()) {
	counter, _ := r.inside.LoadOrStore(key, new(atomic.Int64))
	inside := counter.(*atomic.Int64)
	if inside.Add(1) > 1 {
		r.overlaps.Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = map[string][]run{}
	}
	for _, earlier := range r.runs[key] {
		if earlier.began.Add(r.split).Before(asked) && earlier.fence >= fence {
			r.faults = append(r.faults, fmt.Sprintf("%s: fence %d after %d", key, fence, earlier.fence))
		}
	}
	r.runs[key] = append(r.runs[key], run{time.Now(), fence})
	return func() { inside.Add(-1) }
}

// wrong returns the fences that did not grow.
func (r *referee) wrong() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults
}
