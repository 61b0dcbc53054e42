package backend_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A crowd is Guards that want one key again and again, each with a connection and a subscription
// of its own, as if they were in as many processes.
type crowd struct {
	guards []*guard.Guard

	mu       sync.Mutex
	runs     int
	released time.Time
	longest  time.Duration // from the end of a run to the next run
}

// crowdTTL is long, so that no waiter asks because of the time alone.
const crowdTTL = 2 * time.Minute

func newCrowd(t *testing.T, server *redistest.Server, backend string, n int) *crowd {
	c := &crowd{}
	for range n {
		g, err := guard.New(backends[backend](server.Client(t)), guard.WithTTL(crowdTTL), guard.WithWait(guard.Forever))
		require.NoError(t, err)
		c.guards = append(c.guards, g)
	}
	t.Cleanup(func() {
		for _, g := range c.guards {
			require.NoError(t, g.Close(context.Background()))
		}
	})
	return c
}

// run returns when there were n runs.
func (c *crowd) run(t *testing.T, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for _, g := range c.guards {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = g.Do(ctx, "k", func(context.Context) error {
					if c.begin() >= n {
						cancel()
					}
					time.Sleep(time.Millisecond)
					c.mu.Lock()
					c.released = time.Now()
					c.mu.Unlock()
					return nil
				})
				time.Sleep(20 * time.Millisecond) // so that others wait
			}
		})
	}
	all.Wait()
}

func (c *crowd) begin() (runs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs > 0 {
		c.longest = max(c.longest, time.Since(c.released))
	}
	c.runs++
	return c.runs
}

// A release had all waiters of all processes ask.
func TestCrowd_aReleaseHasFewAsk(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"single", "reentrant"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			const waiters, runs = 64, 60
			server := redistest.Start(t)
			c := newCrowd(t, server, backend, waiters)
			c.run(t, waiters) // they all begin at once
			before := server.Calls(t)["evalsha"]
			c.runs = 0
			c.run(t, runs)
			requests := float64(server.Calls(t)["evalsha"]-before-waiters) / runs
			t.Logf("%.1f requests a run, longest gap %v", requests, c.longest)
			require.Less(t, requests, waiters/2., "it was all of them")
			require.Less(t, c.longest, crowdTTL/4)
		})
	}
}

// Waiters that are frozen, or that were killed before they asked, are receivers to the store.
func TestCrowd_othersAskIfThoseThatAreNotifiedDoNot(t *testing.T) {
	t.Parallel()
	const channel = "redisson_lock__channel:{k}"
	server := redistest.Start(t)
	rdb := server.Client(t)
	for range 5 {
		frozen := server.Client(t).Subscribe(t.Context(), channel)
		t.Cleanup(func() { _ = frozen.Close() })
		_, err := frozen.Receive(t.Context())
		require.NoError(t, err)
	}
	c := newCrowd(t, server, "reentrant", 2)
	nothing := func(context.Context) error { return nil }
	for range 10 {
		lease, err := c.guards[0].Acquire(t.Context(), "k")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- c.guards[1].Do(context.Background(), "k", nothing) }()
		require.Eventually(t, func() bool { return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 6 }, settled, time.Millisecond)
		time.Sleep(100 * time.Millisecond) // for the request after it has subscribed
		require.NoError(t, rdb.Publish(t.Context(), channel, "6").Err())
		require.NoError(t, lease.Release(t.Context()))
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(crowdTTL / 4):
			require.Fail(t, "the waiter does not ask")
		}
	}
}

// Processes that observe an election are receivers to the store, and do not ask for the key. The
// more they were, the later a new leader came. The old one campaigns again after a second.
func TestCrowd_aCandidateLeadsSoonHoweverManyObserve(t *testing.T) {
	t.Parallel()
	const channel, observers = "redisson_lock__channel:{k}", 400
	server := redistest.Start(t)
	rdb := server.Client(t)
	for range observers {
		observer := rdb.Subscribe(t.Context(), channel)
		t.Cleanup(func() { _ = observer.Close() })
		_, err := observer.Receive(t.Context())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leads := make(chan *guard.Candidate, 2)
	var all sync.WaitGroup
	for _, g := range newCrowd(t, server, "reentrant", 2).guards {
		var c *guard.Candidate
		c, err := g.Candidate("k", func(ctx context.Context) error {
			leads <- c
			<-ctx.Done()
			return ctx.Err()
		}, guard.WithTTL(crowdTTL))
		require.NoError(t, err)
		all.Go(func() { _ = c.Run(ctx) })
	}
	leader := <-leads
	require.Eventually(t, func() bool {
		return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == observers+1
	}, 10*time.Second, time.Millisecond)
	time.Sleep(100 * time.Millisecond) // for the request after it has subscribed
	require.NoError(t, rdb.Publish(t.Context(), channel, strconv.Itoa(observers)).Err())
	leader.Resign()
	select {
	case next := <-leads:
		require.NotSame(t, leader, next)
	case <-time.After(5 * time.Second):
		require.Fail(t, "the other candidate does not ask")
	}
	cancel()
	all.Wait()
}
