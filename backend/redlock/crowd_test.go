package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A network delays what it carries by a random time.
type network struct {
	mu    sync.Mutex
	rng   *rand.Rand
	calls atomic.Int64
}

func (n *network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 200*time.Microsecond + time.Duration(n.rng.Int64N(int64(200*time.Microsecond)))
}

// A station is a node that notifies subscribers of releases.
type station struct {
	*memory.Locker

	mu    sync.Mutex
	wakes map[int]func()
	next  int
}

func (s *station) subscribe(wake func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id := s.next
	s.wakes[id] = wake
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wakes, id)
	}
}

func (s *station) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wake := range s.wakes {
		wake()
	}
}

// A remote is a node behind a network.
type remote struct {
	network *network
	store   *station
}

func (r remote) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	r.network.calls.Add(1)
	time.Sleep(r.network.delay())
	defer func() { time.Sleep(r.network.delay()) }()
	return r.store.TryAcquire(ctx, c)
}

func (r remote) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	r.network.calls.Add(1)
	time.Sleep(r.network.delay())
	defer func() { time.Sleep(r.network.delay()) }()
	return r.store.Renew(ctx, c)
}

func (r remote) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	r.network.calls.Add(1)
	time.Sleep(r.network.delay())
	defer func() { time.Sleep(r.network.delay()) }()
	held, err := r.store.Release(ctx, c, after)
	if held {
		r.store.publish()
	}
	return held, err
}

// Describe says that the node shares keys.
func (r remote) Describe() driver.Description { return r.store.Describe() }

func (r remote) Subscribe(_, _ string, notify func(time.Duration)) (stop func()) {
	return r.store.subscribe(func() { time.AfterFunc(r.network.delay(), func() { notify(0) }) })
}

// Many processes wait for one key. Their claims must not keep each other out: nearly each release
// is followed by a grant, for a few requests, and no process is left out.
func TestWaiters_ofManyProcessesAllGetTheKey(t *testing.T) {
	requireInTurn(t, time.Second, 2, 12)
}

func TestWeekly_waitersOfManyProcessesAllGetTheKey(t *testing.T) {
	redistest.Long(t)
	requireInTurn(t, time.Second, 1, 5, 20, 40)
}

// requireInTurn has so many processes want the key for the span, in virtual time.
func requireInTurn(t *testing.T, span time.Duration, counts ...int) {
	t.Helper()
	for _, processes := range counts {
		synctest.Test(t, func(t *testing.T) {
			n := &network{rng: rand.New(rand.NewPCG(1, uint64(processes)))}
			stores := make([]*station, 5)
			for i := range stores {
				stores[i] = &station{Locker: memory.New(), wakes: map[int]func(){}}
			}
			ctx, cancel := context.WithTimeout(t.Context(), span)
			defer cancel()
			ran := make([]atomic.Int64, processes)
			var inside atomic.Int64
			var all sync.WaitGroup
			for i := range processes {
				var nodes []guard.Locker
				for _, s := range stores {
					nodes = append(nodes, remote{n, s})
				}
				g, err := guard.New(redlock.New(nodes), guard.WithTTL(30*time.Second), guard.WithWait(guard.Forever))
				require.NoError(t, err)
				all.Go(func() {
					for ctx.Err() == nil {
						_ = g.Do(ctx, "k", func(context.Context) error {
							if n := inside.Add(1); n > 1 {
								t.Errorf("%d hold the key", n)
							}
							ran[i].Add(1)
							time.Sleep(time.Millisecond) // virtual time
							inside.Add(-1)
							return nil
						})
					}
					if err := g.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second) // the slowest nodes have answered then
			runs, least := int64(0), ran[0].Load()
			for i := range ran {
				runs += ran[i].Load()
				least = min(least, ran[i].Load())
			}
			require.Positive(t, runs)
			t.Logf("%d processes: %d runs of %v with the pause between, %.1f requests each, the least served had %.2f of its share",
				processes, runs, span/time.Duration(runs), float64(n.calls.Load())/float64(runs), float64(least)*float64(processes)/float64(runs))
			require.LessOrEqual(t, n.calls.Load(), 40*runs, "requests for a run; 10 are needed")
			require.GreaterOrEqual(t, runs, int64(span/(8*time.Millisecond)))
			require.Positive(t, least)
		})
	}
}
