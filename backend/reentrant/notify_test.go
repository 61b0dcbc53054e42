package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const channel = "redisson_lock__channel:{k}"

// requireListening waits until one connection listens for the release of "k".
func requireListening(t *testing.T, server *redistest.Server) {
	t.Helper()
	rdb := server.Client(t)
	require.Eventually(t, func() bool { return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 }, soon, step)
}

// requireNobodyListens waits until the servers have no channel and no listener.
func requireNobodyListens(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return pubsubClients(t, servers...) == 0 }, soon, step)
	for _, s := range servers {
		rdb := s.Client(t)
		require.Empty(t, rdb.PubSubChannels(t.Context(), "*").Val())
		require.Empty(t, rdb.PubSubShardChannels(t.Context(), "*").Val())
	}
}

func TestLong_oneConnectionForAllKeysThatAreWaitedFor(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	for name, c := range map[string]struct {
		connect     func() redis.UniversalClient
		nodes       []*redistest.Server
		connections int
	}{
		"standalone": {func() redis.UniversalClient { return server.Client(t) }, []*redistest.Server{server}, 1},
		"Cluster":    {func() redis.UniversalClient { return cluster.Client(t) }, cluster.Nodes, 3},
		"interface": {func() redis.UniversalClient {
			return struct{ redis.UniversalClient }{server.Client(t)}
		}, []*redistest.Server{server}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const keys = 50
			holder, waiter := newGuard(t, c.connect()), newGuard(t, c.connect())
			var held []*guard.Lease
			var waiting []<-chan outcome
			for i := range keys {
				key := fmt.Sprint("k", i)
				held = append(held, acquire(t, holder, key))
				waiting = append(waiting, waits(t, waiter, key), waits(t, waiter, key))
			}
			require.Eventually(t, func() bool {
				n := 0
				for _, node := range c.nodes {
					rdb := node.Client(t)
					n += len(rdb.PubSubChannels(t.Context(), "*").Val()) + len(rdb.PubSubShardChannels(t.Context(), "*").Val())
					_ = rdb.Close()
				}
				return n == keys
			}, soon, 50*time.Millisecond)
			settled(t, c.nodes...)
			require.Equal(t, c.connections, pubsubClients(t, c.nodes...))
			for _, lease := range held {
				require.NoError(t, lease.Release(t.Context()))
			}
			for _, done := range waiting {
				requireIn(t, done)
			}
			requireNobodyListens(t, c.nodes...)
		})
	}
}

func TestNotify_endsWithTheContextOfTheWaiter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := newGuard(t, server.Client(t))
	acquire(t, g, "k")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Do(ctx, "k", nothing, guard.WithWait(guard.Forever)) }()
	requireListening(t, server)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	requireNobodyListens(t, server)
}

func TestNotify_aWaiterSurvivesItsConnection(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*testing.T, *redistest.Server, *redistest.Proxy){
		"killed": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
			require.NoError(t, s.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		},
		"reset": func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr())
			lease := acquire(t, newGuard(t, server.Client(t)), "k")
			done := waits(t, newGuard(t, proxy.Client(t)), "k")
			requireListening(t, server)
			// the waiter may miss the release, so it asks again when it has subscribed again
			fault(t, server, proxy)
			require.NoError(t, lease.Release(t.Context()))
			requireIn(t, done)
		})
	}
}

func TestNotify_aWaiterAsksAgainIfItWasNotNotified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	const brief = 2 * time.Second
	lease := acquire(t, newGuard(t, server.Client(t)), "k")
	start := time.Now()
	done := waits(t, newGuard(t, proxy.Client(t), guard.WithTTL(brief)), "k")
	requireListening(t, server)
	settled(t, server)
	proxy.DropPushes(1)
	require.NoError(t, lease.Release(t.Context()))
	took := requireIn(t, done).Sub(start)
	require.Greater(t, took, brief/2, "the message was lost")
}

func TestNotify_aWaiterOutlastsARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lease := acquire(t, newGuard(t, server.Client(t), guard.WithTTL(renewed)), "k")
	done := waits(t, newGuard(t, server.Client(t)), "k")
	requireListening(t, server)
	server.Restart()   // empty
	requireIn(t, done) // there was no notification, but it has subscribed again
	requireNotHeld(t, lease)
}

func TestNotify_aWaiterLearnsThatTheWorkIsDone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := newGuard(t, server.Client(t))
	lease := acquire(t, g, "k", guard.WithOnce(time.Minute))
	done := waits(t, newGuard(t, server.Client(t)), "k")
	requireListening(t, server)
	require.NoError(t, lease.Complete(t.Context()))
	select {
	case got := <-done:
		require.ErrorIs(t, got.err, guard.ErrDone)
	case <-time.After(soon):
		require.FailNow(t, "the waiter sleeps on")
	}
}

func TestNotify_followsAFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	holder, waiter := newGuard(t, sentinel.Client(t)), newGuard(t, sentinel.Client(t))
	lease := acquire(t, holder, "k")
	done := waits(t, waiter, "k")
	requireListening(t, sentinel.Master)
	require.Eventually(t, func() bool { return sentinel.Replica.Client(t).Exists(t.Context(), "k").Val() == 1 }, soon, step)
	sentinel.Master.Kill()
	master := sentinel.WaitFailover(t)
	requireListening(t, master)
	require.NoError(t, lease.Release(t.Context()))
	requireIn(t, done)
}

func TestNotify_followsASlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	holder, waiter := newGuard(t, cluster.Client(t)), newGuard(t, cluster.Client(t))
	lease := acquire(t, holder, "k")
	done := waits(t, waiter, "k")
	slot := cluster.SlotOf(t, "k")
	from := cluster.OwnerOf(t, slot)
	shards := func(node *redistest.Server) int64 {
		rdb := node.Client(t)
		defer func() { _ = rdb.Close() }()
		return rdb.PubSubShardNumSub(t.Context(), channel).Val()[channel]
	}
	require.Eventually(t, func() bool { return shards(from) == 1 }, soon, step)
	to := cluster.Other(from)
	cluster.MoveSlot(t, slot, from, to)
	require.Eventually(t, func() bool { return shards(to) == 1 }, soon, step)
	require.NoError(t, lease.Release(t.Context()))
	requireIn(t, done)
}

func TestNotify_onAServerThatDoesNotKnowShards(t *testing.T) {
	t.Parallel()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	require.NoError(t, server.Start())
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	for _, p := range []reentrant.Publish{reentrant.PublishPlain, reentrant.PublishSharded, reentrant.PublishBoth} {
		g := guardOver(t, reentrant.New(rdb, reentrant.WithPublish(p)))
		lease := acquire(t, g, "k")
		done := waits(t, g, "k")
		require.Eventually(t, func() bool { return server.PubSubNumSub(channel)[channel] == 1 }, soon, step)
		require.NoError(t, lease.Release(t.Context()))
		requireIn(t, done)
	}
}
