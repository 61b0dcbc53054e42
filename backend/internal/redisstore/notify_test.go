package redisstore_test

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
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soon = 5 * time.Second
	step = 5 * time.Millisecond

	linger = 150 * time.Millisecond // in which a connection that nobody needs is closed
)

// An ear counts how often it was woken.
type ear struct {
	wakes atomic.Int64
	stop  func()
}

// listen listens to the channel until the test ends, if not before.
func listen(t *testing.T, n *redisstore.Notices, channel string) *ear {
	e := &ear{}
	start := time.Now()
	e.stop = n.Listen(channel, func() { e.wakes.Add(1) })
	require.Less(t, time.Since(start), time.Second, "it does not wait for the server")
	t.Cleanup(e.stop)
	return e
}

// requireWakes waits for that many wakes in all.
func (e *ear) requireWakes(t *testing.T, want int64) {
	t.Helper()
	require.Eventually(t, func() bool { return e.wakes.Load() >= want }, soon, step, "woken")
	require.Equal(t, want, e.wakes.Load(), "wakes")
}

// listeners returns how many connections of the servers are those of listeners.
func listeners(t *testing.T, servers ...*redistest.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		list, err := s.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		n += strings.Count(list, "\n")
	}
	return n
}

func requireNoListeners(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return listeners(t, servers...) == 0 }, soon, step, "connections are left")
}

// channels returns the channels to which somebody listens, in either way.
func channels(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	return append(rdb.PubSubChannels(t.Context(), "*").Val(), rdb.PubSubShardChannels(t.Context(), "*").Val()...)
}

func TestNotices_wakeWhenConfirmedAndAtEachMessage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	for name, c := range map[string]struct {
		via     redisstore.Via
		publish func(channel string) error
		wakes   int64 // for one publication
	}{
		"plain":         {redisstore.ViaPlain, func(ch string) error { return rdb.Publish(t.Context(), ch, "0").Err() }, 1},
		"sharded":       {redisstore.ViaSharded, func(ch string) error { return rdb.SPublish(t.Context(), ch, "0").Err() }, 1},
		"both, plain":   {redisstore.ViaBoth, func(ch string) error { return rdb.Publish(t.Context(), ch, "0").Err() }, 1},
		"both, sharded": {redisstore.ViaBoth, func(ch string) error { return rdb.SPublish(t.Context(), ch, "0").Err() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			own := server.Client(t)
			n := redisstore.New("test", own).Notices(c.via)
			first, other := listen(t, n, "c"), listen(t, n, "other")
			first.requireWakes(t, 1)
			other.requireWakes(t, 1)
			second := listen(t, n, "c")
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
			require.Equal(t, 1, listeners(t, server), "one connection for all")
			second.stop()
			require.Eventually(t, func() bool {
				return !slices.Contains(channels(t, rdb), "c")
			}, soon, step, "nobody listens to it any more")
			require.Contains(t, channels(t, rdb), "other")
			second = listen(t, n, "c")
			second.requireWakes(t, 1)
			require.NoError(t, c.publish("c"))
			second.requireWakes(t, 2)
			second.stop()
			require.Never(t, func() bool { return own.PoolStats().PubSubStats.Created > 1 }, 2*linger, step, "the one is kept")
			other.stop()
			require.Eventually(t, func() bool { return own.PoolStats().PubSubStats.Active == 0 }, soon, step, "a connection is left")
		})
	}
}

func TestNotices_oneConnectionToEachMasterOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	for name, c := range map[string]struct {
		via   redisstore.Via
		most  int
		plain bool
	}{
		"plain":   {redisstore.ViaPlain, 1, true},
		"sharded": {redisstore.ViaSharded, 3, false},
		"both":    {redisstore.ViaBoth, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := redisstore.New("test", cluster.Client(t)).Notices(c.via)
			var ears []*ear
			for i := range 40 {
				ears = append(ears, listen(t, n, fmt.Sprintf("c:{%d}", i)))
			}
			for i, e := range ears {
				e.requireWakes(t, 1)
				if c.plain {
					require.NoError(t, rdb.Publish(t.Context(), fmt.Sprintf("c:{%d}", i), "0").Err())
				} else {
					require.NoError(t, rdb.SPublish(t.Context(), fmt.Sprintf("c:{%d}", i), "0").Err())
				}
				e.requireWakes(t, 2)
			}
			require.Equal(t, c.most, listeners(t, cluster.Nodes...))
			for _, e := range ears {
				e.stop()
			}
			requireNoListeners(t, cluster.Nodes...)
		})
	}
	t.Run("a slot that moves", func(t *testing.T) {
		slotThatMoves(t, cluster)
	})
	t.Run("a node that loses its connections", func(t *testing.T) {
		n := redisstore.New("test", cluster.Client(t)).Notices(redisstore.ViaSharded)
		var ears []*ear
		for i := range 12 {
			ears = append(ears, listen(t, n, fmt.Sprintf("c:{%d}", i)))
		}
		for _, e := range ears {
			e.requireWakes(t, 1)
		}
		for _, node := range cluster.Nodes {
			require.NoError(t, node.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		}
		for i, e := range ears {
			e.requireWakes(t, 2)
			require.NoError(t, rdb.SPublish(t.Context(), fmt.Sprintf("c:{%d}", i), "0").Err())
			e.requireWakes(t, 3)
		}
	})
}

// slotThatMoves has the slot of one channel of several move.
func slotThatMoves(t *testing.T, cluster *redistest.Cluster) {
	rdb := cluster.Client(t)
	n := redisstore.New("test", cluster.Client(t)).Notices(redisstore.ViaSharded)
	moving := listen(t, n, "moving")
	slot := cluster.SlotOf(t, "moving")
	from := cluster.OwnerOf(t, slot)
	staying := listen(t, n, cluster.KeyOn(t, from))
	moving.requireWakes(t, 1)
	staying.requireWakes(t, 1)
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	cluster.MoveSlot(t, slot, from, to)
	moving.requireWakes(t, 2) // as something may have been said meanwhile
	require.NoError(t, rdb.SPublish(t.Context(), "moving", "0").Err())
	moving.requireWakes(t, 3)
	staying.requireWakes(t, 1)
	cluster.MoveSlot(t, slot, to, from)
	moving.requireWakes(t, 4)
	require.NoError(t, rdb.SPublish(t.Context(), "moving", "0").Err())
	moving.requireWakes(t, 5)
	staying.requireWakes(t, 1)
}

func TestNotices_followASlotWhoseMasterHasDied(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	slot := cluster.SlotOf(t, "c")
	old := cluster.OwnerOf(t, slot)
	rest := slices.DeleteFunc(slices.Clone(cluster.Nodes), func(s *redistest.Server) bool { return s == old })
	n := redisstore.New("test", cluster.Client(t)).Notices(redisstore.ViaSharded)
	e := listen(t, n, "c")
	e.requireWakes(t, 1)
	old.Kill()
	id, err := rest[0].Client(t).Do(t.Context(), "CLUSTER", "MYID").Text()
	require.NoError(t, err)
	for _, node := range rest {
		require.NoError(t, node.Client(t).Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
	}
	require.Eventually(t, func() bool { return e.wakes.Load() > 1 }, 2*soon, step, "it listens at the new one")
	require.Eventually(t, func() bool { return rest[0].Client(t).SPublish(t.Context(), "c", "0").Val() == 1 }, soon, 50*time.Millisecond)
	require.Eventually(t, func() bool { return e.wakes.Load() > 2 }, soon, step)
}

func TestNotices_listenAgainWhenTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := server.Client(t)
	n := redisstore.New("test", proxy.Client(t)).Notices(redisstore.ViaPlain)
	e := listen(t, n, "c")
	e.requireWakes(t, 1)
	for name, fault := range map[string]func(){
		"killed":    func() { require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()) },
		"reset":     proxy.Cut,
		"restarted": server.Restart,
	} {
		before := e.wakes.Load()
		start := time.Now()
		fault()
		e.requireWakes(t, before+1)
		require.Less(t, time.Since(start), time.Second, name)
		require.NoError(t, rdb.Publish(t.Context(), "c", "0").Err(), name)
		e.requireWakes(t, before+2)
		require.Equal(t, 1, listeners(t, server), name)
	}
}

func TestNotices_askAServerThatRefusesLessAndLessOften(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	n := redisstore.New("test", proxy.Client(t)).Notices(redisstore.ViaPlain)
	server.Kill()
	first, second := listen(t, n, "c"), listen(t, n, "d")
	// how often a refused listener tries is counted over a time: there is no event to wait for
	time.Sleep(1500 * time.Millisecond)
	require.Less(t, proxy.Conns(), 10)
	require.Greater(t, proxy.Conns(), 2)
	require.Zero(t, first.wakes.Load())
	second.stop()
	server.Restart()
	first.requireWakes(t, 1)
	require.Zero(t, second.wakes.Load())
}

func TestNotices_outlastAFrozenServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	n := redisstore.New("test", rdb).Notices(redisstore.ViaPlain)
	server.Freeze()
	e, left := listen(t, n, "c"), listen(t, n, "d")
	start := time.Now()
	left.stop()
	require.Less(t, time.Since(start), time.Second, "nor does it wait to stop")
	e.stop()
	e = listen(t, n, "c")
	require.Never(t, func() bool { return e.wakes.Load() > 0 }, 200*time.Millisecond, step)
	server.Thaw()
	e.requireWakes(t, 1)
	require.Equal(t, 1, listeners(t, server))
}

func TestNotices_giveUpAConnectionThatIsSilent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	n := redisstore.New("test", proxy.Client(t)).Notices(redisstore.ViaPlain)
	e := listen(t, n, "c")
	e.requireWakes(t, 1)
	conns := proxy.Conns()
	require.Never(t, func() bool { return proxy.Conns() > conns }, 7*time.Second, 100*time.Millisecond, "it answers")
	proxy.DarkRequests()
	require.Eventually(t, func() bool { return proxy.Conns() > conns }, 7*time.Second, step)
	proxy.Restore()
	e.requireWakes(t, 2)
}

func TestNotices_fromAServerThatDoesNotKnowShards(t *testing.T) {
	t.Parallel()
	for name, via := range map[string]redisstore.Via{"sharded": redisstore.ViaSharded, "both": redisstore.ViaBoth} {
		t.Run(name, func(t *testing.T) {
			server := miniredis.RunT(t)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			n := redisstore.New("test", rdb).Notices(via)
			for i := range 3 {
				channel := fmt.Sprint("c", i)
				e := listen(t, n, channel)
				e.requireWakes(t, 1)
				server.Publish(channel, "0")
				e.requireWakes(t, 2)
			}
			brief := listen(t, n, "brief")
			brief.stop()
			require.Eventually(t, func() bool { return len(server.PubSubChannels("")) == 3 }, soon, step)
		})
	}
}

func TestNotices_aRefusedChannelDisturbsNoOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	acl := func(rules ...any) {
		t.Helper()
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "limited"}, rules...)...).Err())
	}
	acl("reset", "on", ">pw", "~*", "+@all", "&ours:*")
	rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "limited", "pw" })
	n := redisstore.New("test", rdb).Notices(redisstore.ViaSharded)
	theirs, ours := listen(t, n, "theirs:c"), listen(t, n, "ours:c")
	ours.requireWakes(t, 1)
	// how often a refused listener tries is counted over a time: there is no event to wait for
	time.Sleep(1500 * time.Millisecond)
	refused := rejected(t, admin, "ssubscribe")
	require.Greater(t, refused, 2)
	require.Less(t, refused, 10)
	require.Zero(t, theirs.wakes.Load())
	acl("&theirs:*")
	theirs.requireWakes(t, 1)
	require.NoError(t, admin.SPublish(t.Context(), "ours:c", "0").Err())
	ours.requireWakes(t, 2)
}

// rejected returns how often the server has refused to run the command.
func rejected(t *testing.T, rdb *redis.Client, command string) (n int) {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, figure, ok := strings.Cut(info["Commandstats"]["cmdstat_"+command], "rejected_calls=")
	require.True(t, ok)
	_, err = fmt.Sscanf(figure, "%d", &n)
	require.NoError(t, err)
	return n
}

func TestNotices_endWithAClientThatWasClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	n := redisstore.New("test", rdb).Notices(redisstore.ViaPlain)
	e := listen(t, n, "c")
	e.requireWakes(t, 1)
	require.NoError(t, rdb.Close())
	listen(t, n, "d").stop()
	requireNoListeners(t, server)
}

func TestNotices_areNotLostInTheCrowd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	n := redisstore.New("test", server.Client(t)).Notices(redisstore.ViaPlain)
	done := make(chan error)
	for g := range 8 {
		go func() {
			for i := range 50 {
				channel := fmt.Sprint("c", (g+i)%5)
				woken := make(chan struct{}, 1)
				stop := n.Listen(channel, func() {
					select {
					case woken <- struct{}{}:
					default:
					}
				})
				if i%3 > 0 { // else it leaves at once
					for range 2 { // it listens; it is told
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
	requireNoListeners(t, server)
	require.Empty(t, rdb.PubSubChannels(t.Context(), "*").Val())
}
