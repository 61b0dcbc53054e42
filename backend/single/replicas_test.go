package single_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestReplicas_tooFewRefuseTheLeaseAndTheMarker(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	locker := single.New(sentinel.Master.Client(t), single.WithReplicas(1, 200*time.Millisecond))
	g, err := guard.New(locker, guard.WithTTL(5*time.Second))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithOnce(time.Minute)), "with its replica all is well")

	lease, err := g.Acquire(t.Context(), "held", guard.WithOnce(time.Minute))
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
	require.NoError(t, g.Do(t.Context(), "other", nothing, guard.WithWait(5*time.Second)), "what was refused was given back")
	require.NoError(t, g.Close(t.Context()))
}

func TestReplicas_leaseOutlivesAFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	rdb := sentinel.Client(t)
	g, err := guard.New(single.New(rdb, single.WithReplicas(1, time.Second)), guard.WithTTL(10*time.Second))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)
	sentinel.Master.Kill()
	sentinel.WaitFailover(t)
	unreplicated := newGuard(t, rdb)
	require.ErrorIs(t, unreplicated.Do(t.Context(), "k", nothing, guard.WithWait(time.Second)), guard.ErrBusy)
	require.True(t, lease.Valid())
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}

func TestReplicas_onACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t) // which has none
	g, err := guard.New(single.New(cluster.Client(t), single.WithReplicas(1, 50*time.Millisecond)), guard.WithTTL(time.Second))
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
