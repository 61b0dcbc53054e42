package single_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestReplicas_tooFewRefuseTheLeaseAndTheMarker(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	rdb := sentinel.Master.Client(t)
	patient, err := guard.New(single.New(rdb, single.WithReplicas(1, settled)))
	require.NoError(t, err)
	require.NoError(t, patient.Do(t.Context(), "k", nothing, guard.WithOnce(long)), "with its replica all is well")
	g, err := guard.New(single.New(rdb, single.WithReplicas(1, 200*time.Millisecond)), guard.WithTTL(long))
	require.NoError(t, err)
	// a busy machine may need several tries
	lease, err := g.Acquire(t.Context(), "held", guard.WithOnce(long), guard.WithWait(settled))
	require.NoError(t, err)
	sentinel.Replica.Freeze()
	var failed *guard.StoreError
	require.ErrorAs(t, g.Do(t.Context(), "other", func(context.Context) error { t.Error("ran"); return nil }), &failed)
	require.Equal(t, driver.KindNoReplicas, failed.Kind)
	require.ErrorContains(t, failed, "0 of 1 replicas")
	require.ErrorIs(t, g.Do(t.Context(), "held", nothing), guard.ErrBusy, "an answer that writes nothing needs no replica")
	require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrDone)
	var uncertain *guard.MarkerError
	require.ErrorAs(t, lease.Complete(t.Context()), &uncertain)
	require.ErrorAs(t, uncertain.Err, &failed)
	require.Equal(t, driver.OpRelease, failed.Op)

	sentinel.Replica.Thaw()
	require.NoError(t, g.Do(t.Context(), "other", nothing, guard.WithWait(settled)), "the refused claim was released")
	require.NoError(t, g.Close(t.Context()))
	require.NoError(t, patient.Close(t.Context()))
}

func TestReplicas_leaseOutlivesAFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	rdb := sentinel.Client(t)
	g, err := guard.New(single.New(rdb, single.WithReplicas(1, 10*time.Second)), guard.WithTTL(long))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)
	sentinel.Master.Kill()
	sentinel.WaitFailover(t)
	unreplicated := newGuard(t, rdb)
	require.Eventually(t, func() bool { return errors.Is(unreplicated.Do(t.Context(), "k", nothing), guard.ErrBusy) }, settled, time.Millisecond)
	require.True(t, lease.Valid())
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}

func TestReplicas_onACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t) // which has none
	g, err := guard.New(single.New(cluster.Client(t), single.WithReplicas(1, 50*time.Millisecond)), guard.WithTTL(long))
	require.NoError(t, err)
	var failed *guard.StoreError
	require.ErrorAs(t, g.Do(t.Context(), "k", nothing), &failed)
	require.Equal(t, driver.KindNoReplicas, failed.Kind)
	require.NoError(t, g.Close(t.Context()))
}

func TestReplicas_refusesSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	rdb := client(t, "127.0.0.1:1")
	for want, option := range map[string]single.Option{
		"WithReplicas(0): must ask for at least one replica": single.WithReplicas(0, time.Second),
		"WithReplicas(0s): must give them at least 1ms":      single.WithReplicas(1, 0),
	} {
		_, err := guard.New(single.New(rdb, option))
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, want)
	}
}

// A routed hook notes what goes to which node of a Cluster.
type routed struct {
	addr string
	note func(addr string, names []string)
}

func (r routed) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r routed) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r routed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, cmd := range cmds {
			names = append(names, cmd.Name())
		}
		r.note(r.addr, names)
		return next(ctx, cmds)
	}
}

// WAIT answers for the connection on which it comes. Without the write before it, it says at once
// that all is well.
func TestReplicas_areAskedByTheMasterThatHasWrittenAlsoAfterASlotMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t) // whose masters have no replicas
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Hour })
	var mu sync.Mutex
	var sent [][]string
	rdb.OnNewNode(func(node *redis.Client) {
		node.AddHook(routed{node.Options().Addr, func(addr string, names []string) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, append([]string{addr}, names...))
		}})
	})
	l := single.New(rdb, single.WithReplicas(1, 20*time.Millisecond))
	var failed *guard.StoreError
	_, err := l.TryAcquire(t.Context(), claimOf(1))
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindNoReplicas, failed.Kind)
	slot := cluster.SlotOf(t, clusterLeaseKey(t, cluster, claimOf(1).Key))
	from := cluster.OwnerOf(t, slot)
	to := cluster.Other(from)
	// The client may read the owners of slots again just then, at its own wish. Then the slot moves
	// back, until a claim has met the master that no longer has it.
	for move := 0; ; move++ {
		require.Less(t, move, 10, "no claim met the old master")
		cluster.MoveSlot(t, slot, from, to)
		mu.Lock()
		sent = nil
		mu.Unlock()
		_, err = l.TryAcquire(t.Context(), claimOf(1))
		require.ErrorAs(t, err, &failed)
		if failed.Kind == driver.KindMoved { // the engine asks again after it
			break
		}
		require.Equal(t, driver.KindNoReplicas, failed.Kind)
		from, to = to, from
	}
	require.Eventually(t, func() bool {
		_, err = l.TryAcquire(t.Context(), claimOf(1))
		require.ErrorAs(t, err, &failed)
		return failed.Kind == driver.KindNoReplicas
	}, settled, 20*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, to.Addr(), sent[len(sent)-1][0])
	for _, pipeline := range sent {
		if pipeline[len(pipeline)-1] == "wait" {
			require.Regexp(t, "^eval", pipeline[1], "%v", sent)
		}
	}
}
