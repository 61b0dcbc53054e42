package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestCluster_writesToAllMastersAndMovesASlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	require.Len(t, cluster.Nodes, 3)
	for _, node := range cluster.Nodes {
		require.Empty(t, node.Calls(t), "starts with clean counters")
	}
	client := cluster.Client(t)
	for _, node := range cluster.Nodes {
		require.NoError(t, client.Set(ctx, cluster.KeyOn(t, node), node.Addr(), 0).Err())
		require.Equal(t, int64(1), node.Calls(t)["set"])
	}

	from, to := cluster.Nodes[0], cluster.Nodes[1]
	key := cluster.KeyOn(t, from)
	slot := cluster.SlotOf(t, key)
	cluster.MoveSlot(t, slot, from, to)
	require.Same(t, to, cluster.OwnerOf(t, slot))
	require.Equal(t, from.Addr(), client.Get(ctx, key).Val(), "the value moved, and the client found it")
	require.NoError(t, client.Set(ctx, key, "there", 0).Err())
	require.Equal(t, int64(2), to.Calls(t)["set"])

	// A move that is under way.
	require.NoError(t, client.Set(ctx, key, "back", 0).Err())
	move := cluster.BeginMove(t, slot, to, from)
	direct := to.Client(t)
	require.Equal(t, "back", direct.Get(ctx, key).Val(), "served while it is still there")
	move.Keys(t)
	require.ErrorContains(t, direct.Get(ctx, key).Err(), "ASK ")
	require.Equal(t, "back", client.Get(ctx, key).Val(), "the client follows ASK")
	move.Finish(t)
	require.Same(t, from, cluster.OwnerOf(t, slot))
}

func TestCluster_replacesANodeWithItsKeys(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client(t)
	var keys []string
	for _, node := range cluster.Nodes {
		keys = append(keys, cluster.KeyOn(t, node))
		require.NoError(t, client.Set(ctx, keys[len(keys)-1], node.Addr(), 0).Err())
	}
	old := cluster.Nodes[0]
	fresh := cluster.Replace(t, old)
	require.Len(t, cluster.Nodes, 3)
	require.NotContains(t, cluster.Nodes, old)
	require.Same(t, fresh, cluster.OwnerOf(t, cluster.SlotOf(t, keys[0])))
	client.ReloadState(ctx) // by itself it does so once a minute, or when a node says MOVED
	require.Eventually(t, func() bool { return client.Get(ctx, keys[0]).Val() == old.Addr() }, soon, step,
		"the key moved with its slot")
	require.NoError(t, client.Set(ctx, keys[1], "v", 0).Err())
	require.Error(t, old.Client(t).Ping(ctx).Err(), "it is gone")
	for _, node := range cluster.Nodes {
		nodes, err := node.Client(t).ClusterNodes(ctx).Result()
		require.NoError(t, err)
		require.NotContains(t, nodes, old.Addr()+"@", "it is forgotten")
	}
}
