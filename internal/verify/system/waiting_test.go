package system_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is a process that holds a key and renews its lease until it is killed, when this
// is set to the stage.
const holderEnv = "ONERUN_TEST_HOLDER"

const holderTTL = time.Second

func holdUntilKilled(on string) {
	l, _ := open(on)
	g, err := guard.New(l, guard.WithTTL(holderTTL))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	if _, err := g.Acquire(context.Background(), "k"); err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("holds")
	select {}
}

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
		t.Run(backend, func(t *testing.T) { f(t, newStage(t, backend)) })
	}
}

// left is for how long the store goes on knowing the longest lease.
func (s stage) left(t *testing.T) (most time.Duration) {
	t.Helper()
	for _, server := range s.servers {
		rdb := server.Client(t)
		keys, err := rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			if strings.Contains(key, ":probe:") {
				continue
			}
			left, err := rdb.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			most = max(most, left)
		}
	}
	return most
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

func TestWaiting_isOverWhenTheLeaseOfAKilledProcessEnds(t *testing.T) {
	on(t, []string{"single", "reentrant", "cluster", "redlock"}, func(t *testing.T, s stage) {
		holder := processtest.Self(t, fmt.Sprintf("%s=%s", holderEnv, s))
		holder.Says("holds")
		w := wait(t.Context(), s.guard(t, guard.WithTTL(10*time.Second)))
		<-w.waits
		s.requireListening(t)
		// so that the lease was renewed when its holder is killed: of that nothing is published
		time.Sleep(holderTTL / 2)
		holder.Kill()
		asked := time.Now()
		left := s.left(t)
		require.Positive(t, left)
		redistest.Within(t, left+100*time.Millisecond, "to take over", func() { require.NoError(t, <-w.done) })
		t.Logf("%v after the lease has ended", w.at.Sub(asked)-left)
	})
}

// The waiter that leaves has a request under way, to a frozen server.
func TestWaiting_endsWithTheContextAlsoIfTheServerIsFrozen(t *testing.T) {
	on(t, []string{"single", "reentrant", "redlock"}, func(t *testing.T, s stage) {
		lease, err := s.guard(t, guard.WithTTL(time.Minute)).Acquire(t.Context(), "k")
		require.NoError(t, err)
		g := s.guard(t, guard.WithTTL(2*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		first := wait(ctx, g)
		<-first.waits
		second, third := wait(t.Context(), g), wait(t.Context(), g)
		<-second.waits
		<-third.waits
		s.requireListening(t)
		for _, server := range s.servers {
			server.Freeze()
		}
		// more than half a TTL: it has asked by then, and its time is not up
		time.Sleep(1400 * time.Millisecond)
		redistest.Within(t, 100*time.Millisecond, "to leave", func() {
			cancel()
			require.ErrorIs(t, <-first.done, context.Canceled)
		})
		for _, server := range s.servers {
			server.Thaw()
		}
		require.NoError(t, lease.Release(t.Context()))
		released := time.Now()
		require.NoError(t, <-second.done)
		require.NoError(t, <-third.done)
		require.Less(t, second.at.Sub(released), 3*time.Second, "it is notified, or asks when the requests before it have timed out")
		require.NoError(t, g.Close(t.Context()))
	})
}

// The connection for notifications is lost, and the key is released before there is another.
func TestWaiting_findsAReleaseWhoseNotificationWasLost(t *testing.T) {
	on(t, []string{"single", "reentrant", "cluster", "redlock"}, func(t *testing.T, s stage) {
		lease, err := s.guard(t, guard.WithTTL(time.Minute)).Acquire(t.Context(), "k")
		require.NoError(t, err)
		w := wait(t.Context(), s.guard(t, guard.WithTTL(20*time.Second)))
		<-w.waits
		s.requireListening(t)
		for _, server := range s.servers {
			require.NoError(t, server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		}
		require.NoError(t, lease.Release(t.Context()))
		released := time.Now()
		require.NoError(t, <-w.done)
		require.Less(t, w.at.Sub(released), time.Second, "the pause before it connects again, and one request")
	})
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
		// it has asked once more, after its subscription was confirmed
		time.Sleep(100 * time.Millisecond)
		s.resetStats(t)
		time.Sleep(1900 * time.Millisecond) // what is counted is a rate
		for _, server := range s.servers {
			calls := server.Calls(t)
			scripts := calls["evalsha"] + calls["eval"]
			require.LessOrEqual(t, scripts, int64(4), "one in 0.5 s at most, of all waiters: %v", calls)
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
		const turn, waits = 21, 20 // 20 ms, and the run that is under way then
		atOnce := 0
		for range waits {
			time.Sleep(5 * time.Millisecond) // the crowd has the key again
			before := runs.Load()
			w := wait(t.Context(), g)
			require.NoError(t, <-w.done)
			passed := runs.Load() - before
			require.LessOrEqual(t, passed, int64(5*turn), "hand-off periods in which the other process was faster to ask")
			if passed <= turn {
				atOnce++
			}
		}
		require.Greater(t, atOnce, waits/2)
		cancel()
		for range 50 {
			<-ended
		}
		require.NoError(t, crowd.Close(t.Context()))
		require.NoError(t, g.Close(t.Context()))
	})
}
