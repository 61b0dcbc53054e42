package system_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A waiter is a call that waits for the key.
type waiter struct {
	waits chan struct{} // has an element once the call has found the key busy
	done  chan error
	at    time.Time // when it had the key, once it is done
}

// wait has a call wait for the key.
func wait(ctx context.Context, g *guard.Guard) *waiter {
	w := &waiter{waits: make(chan struct{}, 1), done: make(chan error, 1)}
	hook := guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { w.waits <- struct{}{} }})
	go func() {
		w.done <- g.Do(ctx, "k", func(context.Context) error {
			w.at = time.Now()
			return nil
		}, guard.WithWait(guard.Forever), hook)
	}()
	return w
}

// on runs f on each of the backends.
func on(t *testing.T, backends []string, f func(t *testing.T, s stage)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			f(t, newStage(t, backend))
		})
	}
}

// listeners returns how many connections listen to channels.
func (s stage) listeners(t *testing.T) (n int64) {
	t.Helper()
	for _, server := range s.servers {
		rdb := server.Client(t)
		plain, err := rdb.PubSubNumSub(t.Context(), rdb.PubSubChannels(t.Context(), "*").Val()...).Result()
		require.NoError(t, err)
		sharded, err := rdb.PubSubShardNumSub(t.Context(), rdb.PubSubShardChannels(t.Context(), "*").Val()...).Result()
		require.NoError(t, err)
		for _, subscribed := range []map[string]int64{plain, sharded} {
			for _, one := range subscribed {
				n += one
			}
		}
	}
	return n
}

// requireListening waits until all servers of a stage have a subscriber. In a Cluster, the node of
// the key has one.
func (s stage) requireListening(t *testing.T) {
	t.Helper()
	want := int64(len(s.servers))
	if s.backend == "cluster" {
		want = 1
	}
	require.Eventually(t, func() bool { return s.listeners(t) == want }, 5*time.Second, time.Millisecond)
}

func TestWaiting_costsOneCommandInHalfATTL(t *testing.T) {
	on(t, []string{"single", "reentrant", "redlock"}, func(t *testing.T, s stage) {
		// which is not renewed so soon
		lease, err := s.guard(t, guard.WithTTL(time.Minute)).Acquire(t.Context(), "k")
		require.NoError(t, err)
		g := s.guard(t, guard.WithTTL(time.Second))
		waiters := make([]*waiter, 20)
		for i := range waiters {
			waiters[i] = wait(t.Context(), g)
			<-waiters[i].waits
		}
		s.requireListening(t)
		s.resetStats(t)
		since := time.Now()
		time.Sleep(2 * time.Second) // what is counted is a rate
		for _, server := range s.servers {
			calls := server.Calls(t)
			scripts := calls["evalsha"] + calls["eval"]
			// and one after the subscription was confirmed
			most := 2 + int64(time.Since(since)/(500*time.Millisecond))
			require.LessOrEqual(t, scripts, most, "one in 0.5 s at most, of all waiters: %v", calls)
		}
		require.NoError(t, lease.Release(t.Context()))
		for _, w := range waiters {
			require.NoError(t, <-w.done)
		}
	})
}

// A process with an endless stream of callers has the key for a hand-off period. Then another
// process gets it.
func TestWaiting_getsTheKeyFromABusyProcessAfterAHandOffPeriod(t *testing.T) {
	on(t, []string{"single", "reentrant"}, func(t *testing.T, s stage) {
		crowd := s.guard(t)
		ctx, cancel := context.WithCancel(t.Context())
		var runs atomic.Int64
		ended := make(chan struct{})
		for range 50 {
			go func() {
				for ctx.Err() == nil {
					_ = crowd.Do(ctx, "k", func(context.Context) error {
						runs.Add(1)
						time.Sleep(time.Millisecond) // the work
						return nil
					}, guard.WithWait(guard.Forever))
				}
				ended <- struct{}{}
			}()
		}
		g := s.guard(t)
		const turn, waits = 21, 15 // 20 ms, and the run that is under way then
		var passed []int64
		for range waits {
			time.Sleep(5 * time.Millisecond) // the crowd has the key again
			before := runs.Load()
			w := wait(t.Context(), g)
			require.NoError(t, <-w.done)
			passed = append(passed, runs.Load()-before)
		}
		slices.Sort(passed)
		require.LessOrEqual(t, passed[waits/2], int64(3*turn), "hand-off periods in which the other process was faster to ask: %v", passed)
		cancel()
		for range 50 {
			<-ended
		}
		require.NoError(t, crowd.Close(t.Context()))
		require.NoError(t, g.Close(t.Context()))
	})
}
