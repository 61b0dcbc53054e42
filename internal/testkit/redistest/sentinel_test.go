package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestSentinel_failsOverAndTheClientFollows(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	require.Len(t, sentinel.SentinelAddrs(), 3)
	client := sentinel.Client(t)
	require.NoError(t, client.Set(ctx, "k", "before", 0).Err())
	replica := sentinel.Replica.Client(t)
	require.Eventually(t, func() bool { return replica.Get(ctx, "k").Val() == "before" }, soon, step)

	sentinel.Master.Kill()
	require.Same(t, sentinel.Replica, sentinel.WaitFailover(t))
	require.Eventually(t, func() bool { return client.Set(ctx, "k", "after", 0).Err() == nil }, soon, step)
	require.Equal(t, "after", replica.Get(ctx, "k").Val())

	sentinel.Master.Restart()
	old := sentinel.Master.Client(t)
	require.Eventually(t, func() bool { return old.Get(ctx, "k").Val() == "after" }, soon, step,
		"the old master comes back as a replica")
	sentinel.Replica.Freeze()
	require.Same(t, sentinel.Master, sentinel.WaitFailover(t), "and the other way round")
}

func TestSentinel_failsOverByCommandAndTheOldMasterLivesOn(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	client, old := sentinel.Client(t), sentinel.Master.Client(t)
	require.NoError(t, client.Set(ctx, "k", "before", 0).Err())
	require.Same(t, sentinel.Replica, sentinel.Failover(t))
	require.Eventually(t, func() bool { return client.Set(ctx, "k", "after", 0).Err() == nil }, soon, step)
	require.Eventually(t, func() bool { return old.Get(ctx, "k").Val() == "after" }, soon, step, "as a replica")
	require.Same(t, sentinel.Master, sentinel.Failover(t), "and back")
}
