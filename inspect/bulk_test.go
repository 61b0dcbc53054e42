package inspect_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// trips counts what a client sends: commands and pipelines.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { t.n.Add(1); return next(ctx, cmd) }
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { t.n.Add(1); return next(ctx, cmds) }
}

// The state and the records of 2,000 jobs are six reads of the store, and not one or more for each.
func TestJobs_manyAreReadInFewCalls(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	var calls atomic.Int64
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"), guard.WithHook(guard.Hook{
		Call: func(_ context.Context, e guard.CallEvent) {
			if e.Op == driver.OpLedger {
				calls.Add(1)
			}
		},
	}))
	require.NoError(t, err)
	control, err := guardcron.NewControl(g)
	require.NoError(t, err)
	ledger, _ := g.Adapter().Ledger()
	const n = 2000
	at := time.Now().UTC().Truncate(time.Minute)
	var names []string
	for j := range n {
		names = append(names, fmt.Sprintf("job %04d", j))
		require.NoError(t, cronlog.Announce(t.Context(), ledger, names[j], ""))
		require.NoError(t, cronlog.Record(t.Context(), ledger, names[j], guardcron.Record{Tick: at, Result: guardcron.Ran, Who: names[j]}))
	}
	require.NoError(t, control.Pause(t.Context(), names[7], 0, alice))
	warm := rdb.Pipeline() // pipelines have connections of their own, which begin with HELLO
	warm.Ping(t.Context())
	_, err = warm.Exec(t.Context())
	require.NoError(t, err)
	var count trips
	rdb.AddHook(&count)
	calls.Store(0)
	jobs, err := control.List(t.Context())
	require.NoError(t, err)
	require.Len(t, jobs, n)
	require.True(t, jobs[7].Paused)
	require.False(t, jobs[8].Paused)
	records, err := control.RecordsOf(t.Context(), names, 10)
	require.NoError(t, err)
	for j, name := range names {
		require.Equal(t, name, records[j][0].Who)
	}
	require.LessOrEqual(t, calls.Load(), int64(8))
	require.LessOrEqual(t, count.n.Load(), int64(8))
	t.Logf("%d calls, %d round trips", calls.Load(), count.n.Load())
}
