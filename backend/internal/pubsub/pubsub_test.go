package pubsub_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce(8)
	redistest.VerifyNoLeaks(m)
}

const (
	soon = time.Minute // that a busy machine may take
	step = 5 * time.Millisecond

	linger = 150 * time.Millisecond // within which a channel without receivers is given up
)

// A subscription counts how often it was woken.
type subscription struct {
	wakes atomic.Int64
	stop  func()
}

// subscribe subscribes to the channel until the test ends, or until stop.
func subscribe(t *testing.T, s *pubsub.Subscriber, channel string) *subscription {
	sub := &subscription{}
	start := time.Now()
	sub.stop = s.Subscribe(channel, func(string) { sub.wakes.Add(1) })
	require.Less(t, time.Since(start), soon, "it does not wait for the server")
	t.Cleanup(sub.stop)
	return sub
}

// requireWakes waits for that many wakes in all.
func (s *subscription) requireWakes(t *testing.T, want int64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.wakes.Load() >= want }, soon, step, "woken")
	require.Equal(t, want, s.wakes.Load(), "wakes")
}

// subscribers returns the number of connections to the servers that have subscriptions.
func subscribers(t *testing.T, servers ...*redistest.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		list, err := s.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		n += strings.Count(list, "\n")
	}
	return n
}

func requireNoSubscribers(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return subscribers(t, servers...) == 0 }, soon, step, "connections are left")
}

// channels returns the channels that have subscribers, plain and sharded.
func channels(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	return append(rdb.PubSubChannels(t.Context(), "*").Val(), rdb.PubSubShardChannels(t.Context(), "*").Val()...)
}

func TestSubscriber_wakesWhenConfirmedAndAtEachMessage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	for name, c := range map[string]struct {
		via     pubsub.Via
		publish func(channel string) error
		wakes   int64 // for one publication
	}{
		"plain":         {pubsub.ViaPlain, func(ch string) error { return rdb.Publish(t.Context(), ch, "0").Err() }, 1},
		"sharded":       {pubsub.ViaSharded, func(ch string) error { return rdb.SPublish(t.Context(), ch, "0").Err() }, 1},
		"both, plain":   {pubsub.ViaBoth, func(ch string) error { return rdb.Publish(t.Context(), ch, "0").Err() }, 1},
		"both, sharded": {pubsub.ViaBoth, func(ch string) error { return rdb.SPublish(t.Context(), ch, "0").Err() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			own := server.Client(t)
			s := pubsub.New(own, c.via)
			first, other := subscribe(t, s, "c"), subscribe(t, s, "other")
			first.requireWakes(t, 1)
			other.requireWakes(t, 1)
			second := subscribe(t, s, "c")
			second.requireWakes(t, 1)
			first.requireWakes(t, 1) // the channel was confirmed before
			for i := range int64(3) {
				require.NoError(t, c.publish("c"))
				first.requireWakes(t, 2+i)
				second.requireWakes(t, 2+i)
			}
			first.stop()
			first.stop()
			require.NoError(t, c.publish("c"))
			second.requireWakes(t, 5)
			first.requireWakes(t, 4)
			other.requireWakes(t, 1)
			require.Equal(t, 1, subscribers(t, server), "one connection for all")
			second.stop()
			require.Eventually(t, func() bool {
				return !slices.Contains(channels(t, rdb), "c")
			}, soon, step, "it has no subscribers any more")
			require.Contains(t, channels(t, rdb), "other")
			second = subscribe(t, s, "c")
			second.requireWakes(t, 1)
			require.NoError(t, c.publish("c"))
			second.requireWakes(t, 2)
			second.stop()
			require.Never(t, func() bool { return own.PoolStats().PubSubStats.Created > 1 }, 2*linger, step, "the connection is kept")
			other.stop()
			require.Eventually(t, func() bool { return own.PoolStats().PubSubStats.Active == 0 }, soon, step, "a connection is left")
		})
	}
}

func TestSubscriber_keepsAChannelForItsNextReceiver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := pubsub.New(server.Client(t), pubsub.ViaPlain)
	sub := subscribe(t, s, "c")
	sub.requireWakes(t, 1)
	const again = 5
	for range again {
		sub.stop()
		require.NoError(t, rdb.Ping(t.Context()).Err()) // meanwhile
		sub = subscribe(t, s, "c")
		sub.requireWakes(t, 1) // it may have missed messages
	}
	require.NoError(t, rdb.Publish(t.Context(), "c", "0").Err())
	sub.requireWakes(t, 2)
	// it would be all of them without keeping, and is more than one on a machine that stands still
	require.LessOrEqual(t, calls(t, rdb, "subscribe", "calls="), again)
	sub.stop()
	requireNoSubscribers(t, server)
}

func TestSubscriber_hasOneConnectionToEachMasterOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	for name, c := range map[string]struct {
		via   pubsub.Via
		most  int
		plain bool
	}{
		"plain":   {pubsub.ViaPlain, 1, true},
		"sharded": {pubsub.ViaSharded, 3, false},
		"both":    {pubsub.ViaBoth, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := pubsub.New(cluster.Client(t), c.via)
			var subs []*subscription
			for i := range 40 {
				subs = append(subs, subscribe(t, s, fmt.Sprintf("c:{%d}", i)))
			}
			for i, sub := range subs {
				sub.requireWakes(t, 1)
				if c.plain {
					require.NoError(t, rdb.Publish(t.Context(), fmt.Sprintf("c:{%d}", i), "0").Err())
				} else {
					require.NoError(t, rdb.SPublish(t.Context(), fmt.Sprintf("c:{%d}", i), "0").Err())
				}
				sub.requireWakes(t, 2)
			}
			require.Equal(t, c.most, subscribers(t, cluster.Nodes...))
			for _, sub := range subs {
				sub.stop()
			}
			requireNoSubscribers(t, cluster.Nodes...)
		})
	}
	t.Run("a slot that moves", func(t *testing.T) {
		slotThatMoves(t, cluster)
	})
	t.Run("a node that loses its connections", func(t *testing.T) {
		s := pubsub.New(cluster.Client(t), pubsub.ViaSharded)
		var subs []*subscription
		for i := range 12 {
			subs = append(subs, subscribe(t, s, fmt.Sprintf("c:{%d}", i)))
		}
		for _, sub := range subs {
			sub.requireWakes(t, 1)
		}
		for _, node := range cluster.Nodes {
			require.NoError(t, node.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		}
		for i, sub := range subs {
			sub.requireWakes(t, 2)
			require.NoError(t, rdb.SPublish(t.Context(), fmt.Sprintf("c:{%d}", i), "0").Err())
			sub.requireWakes(t, 3)
		}
	})
}

// slotThatMoves moves the slot of one of two channels.
func slotThatMoves(t *testing.T, cluster *redistest.Cluster) {
	rdb := cluster.Client(t)
	s := pubsub.New(cluster.Client(t), pubsub.ViaSharded)
	moving := subscribe(t, s, "moving")
	slot := cluster.SlotOf(t, "moving")
	from := cluster.OwnerOf(t, slot)
	staying := subscribe(t, s, cluster.KeyOn(t, from))
	moving.requireWakes(t, 1)
	staying.requireWakes(t, 1)
	to := cluster.Other(from)
	cluster.MoveSlot(t, slot, from, to)
	moving.requireWakes(t, 2) // messages may have been missed meanwhile
	require.NoError(t, rdb.SPublish(t.Context(), "moving", "0").Err())
	moving.requireWakes(t, 3)
	staying.requireWakes(t, 1)
	cluster.MoveSlot(t, slot, to, from)
	moving.requireWakes(t, 4)
	require.NoError(t, rdb.SPublish(t.Context(), "moving", "0").Err())
	moving.requireWakes(t, 5)
	staying.requireWakes(t, 1)
}

func TestSubscriber_followsASlotWhoseMasterHasDied(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	slot := cluster.SlotOf(t, "c")
	old := cluster.OwnerOf(t, slot)
	rest := slices.DeleteFunc(slices.Clone(cluster.Nodes), func(s *redistest.Server) bool { return s == old })
	s := pubsub.New(cluster.Client(t), pubsub.ViaSharded)
	sub := subscribe(t, s, "c")
	sub.requireWakes(t, 1)
	old.Kill()
	id, err := rest[0].Client(t).Do(t.Context(), "CLUSTER", "MYID").Text()
	require.NoError(t, err)
	for _, node := range rest {
		require.NoError(t, node.Client(t).Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
	}
	require.Eventually(t, func() bool { return sub.wakes.Load() > 1 }, soon, step, "it subscribes at the new master")
	require.Eventually(t, func() bool { return rest[0].Client(t).SPublish(t.Context(), "c", "0").Val() == 1 }, soon, 50*time.Millisecond)
	require.Eventually(t, func() bool { return sub.wakes.Load() > 2 }, soon, step)
}

func TestSubscriber_subscribesAgainAfterALostConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t)
	s := pubsub.New(proxy.Client(t), pubsub.ViaPlain)
	sub := subscribe(t, s, "c")
	sub.requireWakes(t, 1)
	for name, fault := range map[string]func(){
		"killed":    func() { require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()) },
		"reset":     proxy.Cut,
		"restarted": server.Restart,
	} {
		before := sub.wakes.Load()
		fault()
		sub.requireWakes(t, before+1)
		require.NoError(t, rdb.Publish(t.Context(), "c", "0").Err(), name)
		sub.requireWakes(t, before+2)
		require.Eventually(t, func() bool { return subscribers(t, server) == 1 }, soon, step, name)
	}
}

func TestSubscriber_asksAServerThatRefusesLessAndLessOften(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	s := pubsub.New(proxy.Client(t), pubsub.ViaPlain)
	server.Kill()
	first, second := subscribe(t, s, "c"), subscribe(t, s, "d")
	// the retries within some time are counted: there is no event to wait for
	time.Sleep(1500 * time.Millisecond)
	require.Less(t, proxy.Conns(), 10)
	require.Eventually(t, func() bool { return proxy.Conns() > 2 }, soon, step)
	require.Zero(t, first.wakes.Load())
	second.stop()
	server.Restart()
	first.requireWakes(t, 1)
	require.Zero(t, second.wakes.Load())
}

func TestSubscriber_outlastsAFrozenServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, func(o *redis.Options) { o.DialTimeout, o.ReadTimeout = 2*soon, 2*soon })
	s := pubsub.New(rdb, pubsub.ViaPlain)
	server.Freeze()
	sub, left := subscribe(t, s, "c"), subscribe(t, s, "d")
	start := time.Now()
	left.stop()
	require.Less(t, time.Since(start), soon, "stop does not wait either")
	sub.stop()
	sub = subscribe(t, s, "c")
	require.Never(t, func() bool { return sub.wakes.Load() > 0 }, 200*time.Millisecond, step)
	server.Thaw()
	sub.requireWakes(t, 1)
	require.Eventually(t, func() bool { return subscribers(t, server) == 1 }, soon, step)
}

func TestSubscriber_closesAConnectionThatIsSilent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	s := pubsub.New(proxy.Client(t), pubsub.ViaPlain)
	sub := subscribe(t, s, "c")
	sub.requireWakes(t, 1)
	conns := proxy.Conns()
	require.Never(t, func() bool { return proxy.Conns() > conns }, 7*time.Second, 100*time.Millisecond, "it answers")
	proxy.DarkRequests()
	require.Eventually(t, func() bool { return proxy.Conns() > conns }, soon, step)
	proxy.Restore()
	sub.requireWakes(t, 2)
}

func TestSubscriber_worksOnAServerWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	for name, via := range map[string]pubsub.Via{"sharded": pubsub.ViaSharded, "both": pubsub.ViaBoth} {
		t.Run(name, func(t *testing.T) {
			server := miniredis.RunT(t)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			s := pubsub.New(rdb, via)
			for i := range 3 {
				channel := fmt.Sprint("c", i)
				sub := subscribe(t, s, channel)
				sub.requireWakes(t, 1)
				server.Publish(channel, "0")
				sub.requireWakes(t, 2)
			}
			brief := subscribe(t, s, "brief")
			brief.stop()
			require.Eventually(t, func() bool { return len(server.PubSubChannels("")) == 3 }, soon, step)
		})
	}
}

func TestSubscriber_aRefusedChannelDisturbsNoOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	acl := func(rules ...any) {
		t.Helper()
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "limited"}, rules...)...).Err())
	}
	acl("reset", "on", ">pw", "~*", "+@all", "&ours:*")
	rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "limited", "pw" })
	s := pubsub.New(rdb, pubsub.ViaSharded)
	theirs, ours := subscribe(t, s, "theirs:c"), subscribe(t, s, "ours:c")
	ours.requireWakes(t, 1)
	// the retries within some time are counted: there is no event to wait for
	time.Sleep(1500 * time.Millisecond)
	refused := func() int { return calls(t, admin, "ssubscribe", "rejected_calls=") }
	require.Less(t, refused(), 10)
	require.Eventually(t, func() bool { return refused() > 2 }, soon, step)
	require.Zero(t, theirs.wakes.Load())
	acl("&theirs:*")
	theirs.requireWakes(t, 1)
	require.NoError(t, admin.SPublish(t.Context(), "ours:c", "0").Err())
	ours.requireWakes(t, 2)
}

// calls returns how often the server was given the command: "calls=" counts those that it has
// carried out, and "rejected_calls=" those that it has refused.
func calls(t *testing.T, rdb *redis.Client, command, which string) (n int) {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, figure, ok := strings.Cut(info["Commandstats"]["cmdstat_"+command], which)
	require.True(t, ok)
	_, err = fmt.Sscanf(figure, "%d", &n)
	require.NoError(t, err)
	return n
}

func TestSubscriber_endsWithAClientThatWasClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := pubsub.New(rdb, pubsub.ViaPlain)
	sub := subscribe(t, s, "c")
	sub.requireWakes(t, 1)
	require.NoError(t, rdb.Close())
	subscribe(t, s, "d").stop()
	requireNoSubscribers(t, server)
}

func TestSubscriber_losesNoMessageOfManyConcurrentSubscriptions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := pubsub.New(server.Client(t), pubsub.ViaPlain)
	done := make(chan error)
	for g := range 8 {
		go func() {
			for i := range 50 {
				channel := fmt.Sprint("c", (g+i)%5)
				woken := make(chan struct{}, 1)
				stop := s.Subscribe(channel, func(string) {
					select {
					case woken <- struct{}{}:
					default:
					}
				})
				if i%3 > 0 { // the others stop at once
					for range 2 { // the confirmation, then a message
						select {
						case <-woken:
						case <-time.After(soon):
							stop()
							done <- fmt.Errorf("%s was silent", channel)
							return
						}
						if err := rdb.Publish(t.Context(), channel, "0").Err(); err != nil {
							stop()
							done <- err
							return
						}
					}
				}
				stop()
			}
			done <- nil
		}()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
	requireNoSubscribers(t, server)
	require.Empty(t, rdb.PubSubChannels(t.Context(), "*").Val())
}

// A message that begins with a name goes to the receiver of that name alone. One of a name that
// nobody has goes to unknown, also while the channel lingers.
func TestSubscriber_passesAMessageToTheReceiverThatItNames(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	s := pubsub.New(rdb, pubsub.ViaPlain)
	received := make(chan string, 10)
	subscribe := func(name string) (stop func()) {
		stop = s.SubscribeNamed("c", name,
			func(message string) { received <- name + " got " + message }, func(name string) { received <- "nobody is " + name })
		t.Cleanup(stop)
		return stop
	}
	requireNext := func(want string) {
		t.Helper()
		select {
		case got := <-received:
			require.Equal(t, want, got)
		case <-time.After(soon):
			require.Fail(t, "nothing was received", "instead of %q", want)
		}
	}
	publish := func(message string) { require.NoError(t, rdb.Publish(t.Context(), "c", message).Err()) }

	stop := subscribe("a")
	requireNext("a got ")
	stopOther := subscribe("b")
	requireNext("b got ")
	publish("b 750")
	requireNext("b got 750")
	publish("a 0")
	requireNext("a got 0")
	publish("c 0")
	requireNext("nobody is c")
	stop()
	publish("a 0")
	requireNext("nobody is a")
	again := subscribe("a")
	requireNext("a got ")
	stop() // a second time: the new receiver stays
	publish("a -1")
	requireNext("a got -1")
	again()
	stopOther()
	publish("b 0")
	requireNext("nobody is b")
}
