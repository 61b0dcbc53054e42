package onerun_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Two services on one Redis use the same keys, jobs and tasks. With a namespace each, they never
// meet.
func TestServices_ofTwoNamespacesNeverMeet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	shop, billing := service(t, server, "shop"), service(t, server, "billing")
	for name, meet := range map[string]func(t *testing.T, server *redistest.Server, shop, billing *guard.Guard){
		"http":            meetOverHTTP,
		"asynq":           meetInAsynq,
		"scheduler":       meetInScheduler,
		"cron":            meetInCron,
		"cron, Control":   meetInControl,
		"gocron, Locker":  meetInLocker,
		"gocron, Elector": meetInElector,
		"inspect":         meetInInspector,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meet(t, server, shop, billing)
		})
	}
}

func service(t *testing.T, server *redistest.Server, name string) *guard.Guard {
	g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace(name))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

func meetOverHTTP(t *testing.T, _ *redistest.Server, shop, billing *guard.Guard) {
	serve := func(g *guard.Guard, text string) string {
		wrap, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
		require.NoError(t, err)
		return post(wrap(answers(text)))
	}
	require.Equal(t, "of shop", serve(shop, "of shop"))
	require.Equal(t, "of billing", serve(billing, "of billing"), "and not the answer of another service")
	require.Equal(t, "of shop", serve(shop, "again"), "a retry gets the answer")
	require.Equal(t, "of billing", serve(billing, "again"))
}

func meetInAsynq(t *testing.T, server *redistest.Server, shop, billing *guard.Guard) {
	rdb := server.Client(t)
	run := func(g *guard.Guard) (runs int) {
		wrap, err := guardasynq.New(g, guardasynq.FromPayload(), guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()), guardasynq.WithClient(
			asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)))
		require.NoError(t, err)
		h := wrap(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			runs++
			return nil
		}))
		for range 2 {
			require.NoError(t, h.ProcessTask(t.Context(), asynq.NewTask("import", []byte("17"))))
		}
		return runs
	}
	require.Equal(t, 1, run(shop))
	require.Equal(t, 1, run(billing), "and is not done because the other service has done it")
}

// A tick is what a service has run, or enqueued.
type tick struct{ service, name string }

// awaitBoth returns when both services have had one and the same tick.
func awaitBoth(t *testing.T, ticks <-chan tick) {
	had := map[tick]bool{}
	for range 20 {
		now := <-ticks
		had[now] = true
		if had[tick{"shop", now.name}] && had[tick{"billing", now.name}] {
			return
		}
	}
	require.Fail(t, "no tick was one of both services")
}

func meetInScheduler(t *testing.T, server *redistest.Server, shop, billing *guard.Guard) {
	ticks := make(chan tick, 1000)
	for db, g := range []*guard.Guard{shop, billing} {
		queues := asynq.RedisClientOpt{Addr: server.Addr(), DB: db + 1} // each has its own
		s, err := guardscheduler.New(g, queues, &asynq.SchedulerOpts{
			LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
				if err == nil {
					ticks <- tick{g.Adapter().Namespace(), info.ID}
				}
			},
		})
		require.NoError(t, err)
		_, err = s.Register("@every 1s", asynq.NewTask("import", nil))
		require.NoError(t, err)
		require.NoError(t, s.Start())
		t.Cleanup(s.Shutdown)
	}
	awaitBoth(t, ticks)
}

func meetInCron(t *testing.T, _ *redistest.Server, shop, billing *guard.Guard) {
	ticks := make(chan tick, 1000)
	for _, g := range []*guard.Guard{shop, billing} {
		c := cron.New()
		jobs, err := guardcron.New(g, c)
		require.NoError(t, err)
		_, err = jobs.AddFunc("nightly-report", "@every 1s", func(ctx context.Context) error {
			at, _ := guardcron.Tick(ctx)
			ticks <- tick{g.Adapter().Namespace(), at.String()}
			return nil
		})
		require.NoError(t, err)
		c.Start()
		t.Cleanup(func() {
			<-c.Stop().Done()
			require.NoError(t, jobs.Close(context.Background()))
		})
	}
	awaitBoth(t, ticks)
}

func meetInControl(t *testing.T, _ *redistest.Server, shop, billing *guard.Guard) {
	ours, err := guardcron.NewControl(shop)
	require.NoError(t, err)
	theirs, err := guardcron.NewControl(billing)
	require.NoError(t, err)
	require.NoError(t, ours.Pause(t.Context(), "monthly-report", 0, inspect.By{Actor: "alice"}))
	paused, err := ours.Paused(t.Context(), "monthly-report")
	require.NoError(t, err)
	require.True(t, paused)
	paused, err = theirs.Paused(t.Context(), "monthly-report")
	require.NoError(t, err)
	require.False(t, paused, "it is a job of the other service")
}

func meetInLocker(t *testing.T, _ *redistest.Server, shop, billing *guard.Guard) {
	for _, g := range []*guard.Guard{shop, billing} {
		l, err := guardgocron.NewLocker[lock](g)
		require.NoError(t, err)
		held, err := l.Lock(t.Context(), "report")
		require.NoError(t, err)
		_, err = l.Lock(t.Context(), "report")
		require.ErrorIs(t, err, guard.ErrBusy)
		t.Cleanup(func() { require.NoError(t, held.Unlock(context.Background())) })
	}
}

func meetInElector(t *testing.T, _ *redistest.Server, shop, billing *guard.Guard) {
	for _, g := range []*guard.Guard{shop, billing} {
		e, err := guardgocron.NewElector(g, "reports")
		require.NoError(t, err)
		require.NoError(t, e.IsLeader(t.Context()))
		t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
	}
}

func meetInInspector(t *testing.T, _ *redistest.Server, shop, billing *guard.Guard) {
	lease, err := shop.Acquire(t.Context(), "export")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lease.Release(context.Background())) })
	for g, want := range map[*guard.Guard]driver.KeyState{shop: driver.KeyHeld, billing: driver.KeyFree} {
		i, err := inspect.New(g)
		require.NoError(t, err)
		k, err := i.Show(t.Context(), "export")
		require.NoError(t, err)
		require.Equal(t, want, k.State())
	}
}
