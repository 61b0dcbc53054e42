package guardasynq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func TestScheduler_doesNotChangeTheCallersOptions(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New())
	require.NoError(t, err)
	opts := &asynq.SchedulerOpts{}
	r, err := guardasynq.NewScheduler(g, asynq.RedisClientOpt{}, opts)
	require.NoError(t, err)
	require.Nil(t, opts.PreEnqueueFunc)
	r.Shutdown()
	r, err = guardasynq.NewScheduler(g, &asynq.RedisClientOpt{}, nil)
	require.NoError(t, err)
	r.Shutdown()
}

func TestScheduler_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New())
	require.NoError(t, err)
	conn := asynq.RedisClientOpt{}
	var noConn *asynq.RedisClientOpt
	for name, test := range map[string]struct {
		guard *guard.Guard
		conn  asynq.RedisConnOpt
		opts  []guardasynq.SchedulerOption
		names []string
	}{
		"guard":         {nil, conn, nil, []string{"guard"}},
		"conn":          {g, nil, nil, []string{"RedisConnOpt"}},
		"nil conn":      {g, noConn, nil, []string{"RedisConnOpt"}},
		"option":        {g, conn, []guardasynq.SchedulerOption{nil}, []string{"option"}},
		"window":        {g, conn, []guardasynq.SchedulerOption{guardasynq.WithTickMemory(59 * time.Second), guardasynq.WithCatchUp(0)}, []string{"WithTickMemory"}},
		"long window":   {g, conn, []guardasynq.SchedulerOption{guardasynq.WithTickMemory(1e5 * time.Hour)}, []string{"WithOnce"}},
		"catch-up":      {g, conn, []guardasynq.SchedulerOption{guardasynq.WithCatchUp(-1)}, []string{"WithCatchUp"}},
		"long catch-up": {g, conn, []guardasynq.SchedulerOption{guardasynq.WithCatchUp(time.Hour)}, []string{"WithCatchUp"}},
		"ttl":           {g, conn, []guardasynq.SchedulerOption{guardasynq.WithTickTTL(time.Millisecond)}, []string{"WithTickTTL"}},
		"lease":         {g, conn, []guardasynq.SchedulerOption{guardasynq.WithTickLease(guard.WithName("\x00"))}, []string{"WithName"}},
		"all at once":   {nil, nil, []guardasynq.SchedulerOption{guardasynq.WithCatchUp(-1), nil}, []string{"guard", "RedisConnOpt", "WithCatchUp", "option"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := guardasynq.NewScheduler(test.guard, test.conn, nil, test.opts...)
			require.Nil(t, r)
			var setting *guard.SettingError
			require.ErrorAs(t, err, &setting)
			for _, name := range test.names {
				require.ErrorContains(t, err, name)
			}
		})
	}
	r, err := guardasynq.NewScheduler(g, conn, nil, guardasynq.WithCatchUp(0), guardasynq.WithTickMemory(time.Minute))
	require.NoError(t, err)
	t.Cleanup(r.Shutdown)
	for _, spec := range []string{"", "* * *", "61 * * * *", "@every", "TZ=UTC", "CRON_TZ=UTC", "CRON_TZ=Nowhere/At_All * * * * *"} {
		_, err := r.Register(spec, asynq.NewTask("report", nil))
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting)
		require.Equal(t, "cronspec", setting.Setting)
		require.Equal(t, fmt.Sprintf("%q", spec), setting.Value)
	}
	_, err = r.Register("@daily", nil)
	require.ErrorContains(t, err, "task: must not be nil")
	_, err = r.Register("@daily", asynq.NewTask(" ", nil))
	require.ErrorContains(t, err, "must have a type")
}
