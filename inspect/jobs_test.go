package inspect_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestJobs_arePausedForAWhile(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		c := cron.New()
		jobs, err := guardcron.New(s.here, c)
		require.NoError(t, err)
		_, err = jobs.AddFunc("nightly", "* * * * *", func(context.Context) error { return nil })
		require.NoError(t, err)
		control, err := guardcron.NewControl(s.inspector.Guard())
		require.NoError(t, err)
		c.Start()
		time.Sleep(time.Minute + time.Second)

		all, err := control.List(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "nightly", all[0].Name)
		require.Equal(t, "* * * * *", all[0].Spec)
		require.False(t, all[0].Paused)

		require.NoError(t, control.Pause(ctx, "nightly", 2*time.Minute, alice))
		all, err = control.List(ctx)
		require.NoError(t, err)
		require.True(t, all[0].Paused)
		time.Sleep(3 * time.Minute)
		require.NoError(t, control.Pause(ctx, "nightly", 0, alice))
		time.Sleep(time.Minute)
		require.NoError(t, control.Resume(ctx, "nightly", alice))
		time.Sleep(time.Minute)
		records, err := control.Records(ctx, "nightly", 10)
		require.NoError(t, err)
		var outcomes []guardcron.Result
		for _, r := range records {
			outcomes = append(outcomes, r.Result)
		}
		const ran, skipped = guardcron.Ran, guardcron.Skipped
		require.Equal(t, []guardcron.Result{ran, skipped, ran, skipped, skipped, ran}, outcomes)
		// memory notifies nobody
		require.ErrorContains(t, control.Trigger(ctx, "nightly", alice), "RunNow")

		operations, err := s.inspector.Operations(ctx, 10)
		require.NoError(t, err)
		require.Len(t, operations, 4)
		operations[3].Time = time.Time{}
		require.Equal(t, inspect.Operation{Action: inspect.ActionPause, Job: "nightly", For: 2 * time.Minute, Actor: "alice", Reason: "it hangs"}, operations[3])
		for i, action := range []inspect.Action{inspect.ActionTrigger, inspect.ActionResume, inspect.ActionPause} {
			require.Equal(t, action, operations[i].Action)
		}
		require.Equal(t, "nightly", s.outcomes[len(s.outcomes)-1].Name)
		<-c.Stop().Done()
		require.NoError(t, jobs.Close(ctx))
	})
}

// noLedger is a store that keeps no records.
type noLedger struct {
	guard.Locker
	driver.Inspector
}

func TestInspector_withoutALedgerShowsKeysAndKeepsNoRecords(t *testing.T) {
	store := memory.New()
	g, err := guard.New(noLedger{store, store}, guard.WithNamespace("test"))
	require.NoError(t, err)
	i, err := inspect.New(g)
	require.NoError(t, err)
	ctx := t.Context()
	lease, err := g.Acquire(ctx, "report")
	require.NoError(t, err)
	broken, err := i.BreakNow(ctx, "report", lease.ID(), alice)
	require.NoError(t, err)
	require.True(t, broken)
	operations, err := i.Operations(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, operations)
	processes, err := i.Processes(ctx)
	require.NoError(t, err)
	require.Empty(t, processes)
	var bad *guard.SettingError
	require.ErrorAs(t, i.Announce(ctx), &bad)
	require.Equal(t, "Announce", bad.Setting)
	_ = lease.Release(ctx)
	require.NoError(t, g.Close(ctx))
}
