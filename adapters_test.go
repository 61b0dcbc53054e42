package onerun_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

var (
	replaces = []string{"WithWait", "WithOnce", "WithOwner", "WithOwnerFrom"}
	alone    = append(replaces[:4:4], "WithShared", "WithLimit")
	leaders  = []string{"WithOnce", "WithOwner", "WithOwnerFrom", "WithShared", "WithLimit", "WithoutRenewal"}
	held     = []string{"WithOnce", "WithLabel", "WithMinHold", "WithMaxHold", "WithoutRenewal", "WithMargin", "WithShared", "WithLimit"}
	locks    = []string{"WithOnce", "WithOwner", "WithOwnerFrom", "WithMargin"}
)

// The adapter of gRPC is a module of its own, with a test like this one.
func TestAdapters_optionsOfGuard(t *testing.T) {
	t.Parallel()
	adaptertest.TestAllOptions(t)
	queues := asynq.RedisClientOpt{Addr: redistest.Start(t).Addr()}
	for name, a := range map[string]adaptertest.Adapter{
		"http":             {Start: startHTTP(idempotency.Replay), Refused: alone, ByGuard: alone},
		"http, Reject":     {Start: startHTTP(idempotency.Reject), Refused: alone, ByGuard: alone},
		"http, Exclusive":  {Start: startHTTP(idempotency.Exclusive), Refused: replaces, ByGuard: replaces},
		"asynq":            {Start: startAsynq(guardasynq.FromType(), guardasynq.WithLease), Refused: replaces, ByGuard: replaces},
		"asynq, of a task": {Start: startAsynq(guardasynq.FromType(), ofTask), Refused: []string{"WithWait", "WithOnce"}, ByGuard: replaces},
		"asynq, once":      {Start: startAsynq(nil, guardasynq.WithLease), Refused: alone, ByGuard: alone},
		"asynq, once, of a task": {Start: startAsynq(nil, ofTask), ByGuard: alone,
			Refused: []string{"WithWait", "WithOnce", "WithShared", "WithLimit"}},
		"scheduler":                 {Start: startScheduler(queues), Refused: alone, ByGuard: alone},
		"manager":                   {Start: startManager(queues), Refused: alone, ByGuard: alone},
		"cron":                      {Start: startCron(false), Refused: replaces, ByGuard: replaces},
		"cron, of a job":            {Start: startCron(true), Refused: replaces, ByGuard: replaces},
		"cron, Control":             {Start: startControl, Bare: true},
		"gocron, Locker":            {Start: startLocker, Refused: locks, ByGuard: locks},
		"gocron, Elector":           {Start: startElector, Refused: append([]string{"WithWait"}, leaders...), ByGuard: leaders},
		"inspect, Hold":             {Start: startHold, Refused: held, AnyGuard: true},
		"inspect, page and command": {Start: startInspector, Bare: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.Test(t)
		})
	}
}

func startHTTP(mode idempotency.Mode) func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	return func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
		wrap, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithMode(mode), idempotency.WithLease(lease...))
		if err == nil {
			require.Equal(t, "done", post(wrap(answers("done"))))
		}
		return err
	}
}

// post sends the request of a client, and returns the answer.
func post(h http.Handler) string {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "order-1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Body.String()
}

func answers(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

// ofTask gives a task the options of its own lease.
func ofTask(opts ...guard.Option) guardasynq.Option {
	return guardasynq.WithTaskLease(func(context.Context, *asynq.Task) []guard.Option { return opts })
}

func startAsynq(key guardasynq.KeyFunc, with func(...guard.Option) guardasynq.Option) func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	return func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
		opts := []guardasynq.Option{nowhere(t), guardasynq.WithBusy(guardasynq.Skip), with(lease...)}
		if key == nil {
			opts = append(opts, guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()))
		}
		wrap, err := guardasynq.New(g, key, opts...)
		if err != nil {
			return err
		}
		done := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
		return wrap(done).ProcessTask(t.Context(), asynq.NewTask("import", nil))
	}
}

// nowhere is a client of an asynq that is not there: it is not asked.
func nowhere(t *testing.T) guardasynq.Option {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return guardasynq.WithClient(asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb))
}

func startScheduler(queues asynq.RedisConnOpt) func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	return func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
		opts, tick := awaitTick()
		s, err := guardscheduler.New(g, queues, opts, guardscheduler.WithLease(lease...))
		if err != nil {
			return err
		}
		_, err = s.Register("@every 1s", asynq.NewTask("import", nil))
		require.NoError(t, err)
		require.NoError(t, s.Start())
		<-tick
		s.Shutdown()
		return nil
	}
}

// awaitTick returns options of a Scheduler, and a channel that tells of each tick.
func awaitTick() (*asynq.SchedulerOpts, <-chan struct{}) {
	ticks := make(chan struct{}, 100)
	return &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PreEnqueueFunc: func(*asynq.Task, []asynq.Option) { ticks <- struct{}{} }}, ticks
}

type everySecond struct{}

func (everySecond) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every 1s", Task: asynq.NewTask("import", nil)}}, nil
}

func startManager(queues asynq.RedisConnOpt) func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	return func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
		opts, tick := awaitTick()
		m, err := guardscheduler.NewManager(g, asynq.PeriodicTaskManagerOpts{
			PeriodicTaskConfigProvider: everySecond{}, RedisConnOpt: queues, SchedulerOpts: opts,
		}, guardscheduler.WithLease(lease...))
		if err != nil {
			return err
		}
		require.NoError(t, m.Start())
		<-tick
		m.Shutdown()
		return nil
	}
}

func startCron(ofJob bool) func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	return func(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
		all, one := []guardcron.Option{guardcron.WithLease(lease...)}, []guardcron.Option(nil)
		if ofJob {
			all, one = one, all
		}
		c := cron.New()
		jobs, err := guardcron.New(g, c, all...)
		if err != nil {
			return err
		}
		ran := make(chan struct{}, 100)
		_, err = jobs.AddFunc("report", "@every 1s", func(context.Context) error {
			ran <- struct{}{}
			return nil
		}, one...)
		if err == nil {
			c.Start()
			<-ran
			<-c.Stop().Done()
		}
		require.NoError(t, jobs.Close(context.Background()))
		return err
	}
}

func startControl(_ *testing.T, g *guard.Guard, _ ...guard.Option) error {
	c, err := guardcron.NewControl(g)
	if err == nil {
		err = c.Pause(context.Background(), "report", 0, inspect.By{Actor: "alice"})
	}
	return err
}

// lock is gocron.Lock.
type lock interface {
	Unlock(ctx context.Context) error
}

func startLocker(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	l, err := guardgocron.NewLocker[lock](g, lease...)
	if err != nil {
		return err
	}
	held, err := l.Lock(t.Context(), "report")
	require.NoError(t, err)
	return held.Unlock(t.Context())
}

func startElector(t *testing.T, g *guard.Guard, lease ...guard.Option) error {
	e, err := guardgocron.NewElector(g, "reports", lease...)
	if err != nil {
		return err
	}
	require.NoError(t, e.IsLeader(t.Context()))
	return e.Close(t.Context())
}

func startHold(t *testing.T, g *guard.Guard, opts ...guard.Option) error {
	i, err := inspect.New(g)
	if err == nil {
		_, err = i.Hold(t.Context(), "report:7", time.Hour, inspect.By{Actor: "alice"}, opts...)
	}
	return err
}

func startInspector(t *testing.T, g *guard.Guard, _ ...guard.Option) error {
	i, err := inspect.New(g)
	if err == nil {
		_, err = i.Show(t.Context(), "report:7")
	}
	return err
}
