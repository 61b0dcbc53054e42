package guardscheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

func TestScheduler_doesNotChangeTheCallersOptions(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	opts := &asynq.SchedulerOpts{}
	r, err := guardscheduler.New(g, asynq.RedisClientOpt{}, opts)
	require.NoError(t, err)
	require.Nil(t, opts.PreEnqueueFunc)
	r.Shutdown()
	r, err = guardscheduler.New(g, &asynq.RedisClientOpt{}, nil)
	require.NoError(t, err)
	r.Shutdown()
}

func TestScheduler_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	bare, err := guard.New(&guardtest.Scripted{}, guard.WithNamespace("test"))
	require.NoError(t, err)
	conn := asynq.RedisClientOpt{}
	var noConn *asynq.RedisClientOpt
	for name, test := range map[string]struct {
		guard *guard.Guard
		conn  asynq.RedisConnOpt
		opts  []guardscheduler.Option
		names []string
	}{
		"guard":         {nil, conn, nil, []string{"guard"}},
		"conn":          {g, nil, nil, []string{"RedisConnOpt"}},
		"nil conn":      {g, noConn, nil, []string{"RedisConnOpt"}},
		"Option":        {g, conn, []guardscheduler.Option{nil}, []string{"Option"}},
		"catch-up":      {g, conn, []guardscheduler.Option{guardscheduler.WithCatchUp(-1)}, []string{"WithCatchUp"}},
		"long catch-up": {g, conn, []guardscheduler.Option{guardscheduler.WithCatchUp(1001)}, []string{"WithCatchUp"}},
		"deadline":      {g, conn, []guardscheduler.Option{guardscheduler.WithStartDeadline(0)}, []string{"WithStartDeadline"}},
		"long deadline": {g, conn, []guardscheduler.Option{guardscheduler.WithStartDeadline(1e5 * time.Hour)}, []string{"WithOnce"}},
		"no ledger":     {bare, conn, nil, []string{"guard", "driver.Ledger"}},
		"ttl":           {g, conn, []guardscheduler.Option{guardscheduler.WithLease(guard.WithTTL(time.Millisecond))}, []string{"WithTTL"}},
		"lease":         {g, conn, []guardscheduler.Option{guardscheduler.WithLease(guard.WithName("\x00"))}, []string{"WithName"}},
		"all at once":   {nil, nil, []guardscheduler.Option{guardscheduler.WithCatchUp(-1), nil}, []string{"guard", "RedisConnOpt", "WithCatchUp", "Option"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := guardscheduler.New(test.guard, test.conn, nil, test.opts...)
			require.Nil(t, r)
			var setting *guard.SettingError
			require.ErrorAs(t, err, &setting)
			for _, name := range test.names {
				require.ErrorContains(t, err, name)
			}
		})
	}
	r, err := guardscheduler.New(g, conn, nil, guardscheduler.WithStartDeadline(time.Second))
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
