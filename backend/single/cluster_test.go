package single_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// masterConns returns how many connections each master has.
func masterConns(t *testing.T, cluster *redistest.Cluster) (n []int) {
	for _, node := range cluster.Nodes {
		list, err := node.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "normal").Text()
		require.NoError(t, err)
		n = append(n, strings.Count(list, "\n"))
	}
	return n
}

func TestLong_manyCallersOfAClusterNeedFewConnectionsAndRoundTrips(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	l := single.New(cluster.Client(t))
	require.NoError(t, take(t.Context(), l, claimOf(-1)))
	before := masterConns(t, cluster)
	var already int
	for _, node := range cluster.Nodes {
		already += reads(t, node.Client(t))
	}
	const callers, rounds = 512, 10
	for range rounds {
		for _, err := range all(callers, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
			require.NoError(t, err)
		}
		for _, err := range all(callers, func(i int) error {
			held, err := l.Release(t.Context(), claimOf(i), driver.After{})
			if err == nil && !held {
				err = fmt.Errorf("claim %d is not held", i)
			}
			return err
		}) {
			require.NoError(t, err)
		}
	}
	after := masterConns(t, cluster)
	for i := range after {
		require.LessOrEqual(t, after[i], before[i]+12, "connections of master %d", i)
	}
	took := -already
	for _, node := range cluster.Nodes {
		took += reads(t, node.Client(t))
	}
	t.Logf("%d calls took %d reads", 2*callers*rounds, took)
	require.Less(t, took, 2*callers*rounds/4, "they travel together")
}

func TestCluster_callsFollowASlotThatMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Hour })
	l := single.New(rdb)
	const callers = 100
	ask := func() {
		t.Helper()
		for _, err := range all(callers, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
			require.NoError(t, err)
		}
	}
	ask()
	moved := claimOf(7)
	slot := cluster.SlotOf(t, clusterLeaseKey(t, cluster, moved.Key))
	from := cluster.OwnerOf(t, slot)
	to := cluster.Other(from)
	cluster.MoveSlot(t, slot, from, to)
	ask()
	renewals := 0
	require.Eventually(t, func() bool { // the first one may learn that it has moved
		renewals++
		held, err := await(t.Context(), l, driver.OpRenew, moved)
		return held && err == nil
	}, settled, 50*time.Millisecond)
	require.Less(t, renewals, 20)
	held, err := l.Release(t.Context(), moved, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
	for range 50 { // alone, on a connection of its own
		require.NoError(t, take(t.Context(), l, moved))
		held, err := l.Release(t.Context(), moved, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
	}
}

func TestCluster_aLoneCallerFollowsASlotThatMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Hour })
	var own witness
	l := single.New(rdb, single.WithClientSetup(func(c *redis.Client) { c.AddHook(&own) }))
	require.Eventually(t, func() bool {
		require.NoError(t, take(t.Context(), l, claimOf(1)))
		return own.count("evalsha") > 0
	}, settled, time.Millisecond)
	slot := cluster.SlotOf(t, clusterLeaseKey(t, cluster, claimOf(1).Key))
	from := cluster.OwnerOf(t, slot)
	to := cluster.Other(from)
	require.NoError(t, take(t.Context(), l, claimOf(1))) // once more on that connection
	cluster.MoveSlot(t, slot, from, to)
	for range 50 {
		require.NoError(t, take(t.Context(), l, claimOf(1)))
	}
}

// clusterLeaseKey returns the name under which the lease of a key is in the Cluster.
func clusterLeaseKey(t *testing.T, cluster *redistest.Cluster, key string) string {
	for _, node := range cluster.Nodes {
		names, err := node.Client(t).Keys(t.Context(), "*:lease:"+key).Result()
		require.NoError(t, err)
		if len(names) == 1 {
			return names[0]
		}
	}
	t.Fatal("there is no lease of " + key)
	return ""
}

func TestCluster_aFrozenMasterHoldsUpItsOwnKeysOnly(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	l := single.New(cluster.Client(t))
	const callers = 60
	for _, err := range all(callers, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
		require.NoError(t, err)
	}
	frozen := cluster.Nodes[1]
	names, err := frozen.Client(t).Keys(t.Context(), "*:lease:*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, names)
	frozen.Freeze()
	defer frozen.Thaw()
	frozenKey := func(i int) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ":lease:"+claimOf(i).Key) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	var answered atomic.Int64
	for i, err := range all(callers, func(i int) error {
		err := take(ctx, l, claimOf(i))
		if err == nil && answered.Add(1) == int64(callers-len(names)) {
			cancel() // the others would wait for longer
		}
		return err
	}) {
		if frozenKey(i) {
			require.ErrorIs(t, err, guard.ErrStore)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestCluster_setsUpItsConnectionsWhenANodeIsNeeded(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	var w witness
	l := single.New(cluster.Client(t), single.WithClientSetup(func(own *redis.Client) { own.AddHook(&w) }))
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	require.Eventually(t, func() bool { // by the client's connections, until its own is there
		renew(t, l, claimOf(1))
		return w.count("evalsha") > 0
	}, settled, time.Millisecond)
	require.Equal(t, 1, w.count("ping"))
	broken := single.New(cluster.Client(t), single.WithClientSetup(func(*redis.Client) { panic("no such hook") }))
	for range 50 {
		require.NoError(t, take(t.Context(), broken, claimOf(2)))
		renew(t, broken, claimOf(2))
	}
}

// A Cluster that is asked for the owners of its slots, and says so when nobody waits any more, is
// a data race of no batch.
func TestStart_leavesBehindAClusterThatDoesNotSayWhereKeysAre(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	asked := make(chan struct{}, 10)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		asked <- struct{}{}
		<-answer
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
		close(answer)
	}()
	_, err := await(ctx, single.New(rdb), driver.OpRenew, driver.Claim{Key: "k", ID: "id", TTL: ttl})
	require.ErrorIs(t, err, guard.ErrStore)
	_, err = rdb.MasterForKey(context.Background(), "k") // waits for the same answer
	require.NoError(t, err)
}

// go-redis closes the clients of nodes that have left a Cluster. Callers that meet one have not
// closed anything: a waiter would give up after that error.
func TestWeekly_noCallerHearsOfAClientThatGoRedisHasClosed(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	l := single.New(cluster.Client(t))
	const callers = 60
	ctx, stop := context.WithCancel(t.Context())
	var closed, asked atomic.Int64
	var busy sync.WaitGroup
	for i := range callers {
		busy.Go(func() {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				_, err := l.TryAcquire(within, claimOf(i))
				if err == nil {
					_, err = l.Renew(within, claimOf(i))
				}
				cancel()
				var failed *guard.StoreError
				if errors.As(err, &failed) && failed.Kind == driver.KindClosed {
					closed.Add(1)
				}
				asked.Add(1)
				time.Sleep(10 * time.Millisecond) // or the callers take the CPUs from the servers
			}
		})
	}
	cluster.Replace(t, cluster.Nodes[0])
	before := asked.Load()
	require.Eventually(t, func() bool {
		for i := range callers {
			if take(t.Context(), l, claimOf(i)) != nil {
				return false
			}
		}
		return asked.Load() > before+10*callers
	}, 30*time.Second, 10*time.Millisecond)
	stop()
	busy.Wait()
	require.Zero(t, closed.Load())
}
