package guardscheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// The schedulerOrder of a scheduler process, as JSON.
const schedulerEnv = "ONERUN_TEST_SCHEDULER"

type schedulerOrder struct {
	Addr    string
	Manager bool
	Zone    string
	TTL     time.Duration
	Ahead   time.Duration // its clock
	CatchUp int
	// "pre": between the lease and the enqueueing; "release": between the enqueueing and the
	// marker
	Block   string
	Entries []schedulerEntry
}

type schedulerEntry struct{ Spec, Type, Queue string }

// An orderProvider makes new tasks each time, as a provider does that reads a database. It reports
// when its first configs are registered.
type orderProvider struct {
	entries []schedulerEntry
	say     func(...any)
	asked   int
}

func (p *orderProvider) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	if p.asked++; p.asked == 2 {
		p.say("runs")
	}
	var configs []*asynq.PeriodicTaskConfig
	for _, e := range p.entries {
		configs = append(configs, &asynq.PeriodicTaskConfig{Cronspec: e.Spec, Task: asynq.NewTask(e.Type, nil), Opts: []asynq.Option{asynq.Queue(e.Queue)}})
	}
	return configs, nil
}

// A blockedRelease is a store to which no release gets through.
type blockedRelease struct {
	driver.Wrapper
	say func(...any)
}

func (l blockedRelease) Release(_ context.Context, c driver.Claim, after driver.After) (bool, error) {
	l.say("releases", strings.TrimPrefix(c.Key, "test::asynq-tick:"), after.Done)
	select {}
}

// schedulerProcess is a process that does what schedulerEnv says, until it gets SIGTERM. It says
// what happens.
func schedulerProcess() {
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	}
	if err := runScheduler(say); err != nil {
		say("fails", err)
		os.Exit(1)
	}
	say("ended")
}

func runScheduler(say func(...any)) error {
	var order schedulerOrder
	if err := json.Unmarshal([]byte(os.Getenv(schedulerEnv)), &order); err != nil {
		return err
	}
	zone, err := time.LoadLocation(order.Zone)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: order.Addr})
	locker := guard.Locker(single.New(rdb))
	if order.Block == "release" {
		locker = blockedRelease{driver.Wrapper{Locker: locker}, say}
	}
	g, err := guard.New(locker, guard.WithNamespace("test"))
	if err != nil {
		return err
	}
	conn := asynq.RedisClientOpt{Addr: order.Addr}
	opts := &asynq.SchedulerOpts{
		Location: zone,
		LogLevel: asynq.ErrorLevel,
		PreEnqueueFunc: func(task *asynq.Task, _ []asynq.Option) {
			if order.Block == "pre" {
				say("pre", task.Type())
				select {}
			}
		},
		PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
			if err != nil {
				say("error", err)
				return
			}
			say("enqueued", info.ID)
		},
	}
	if order.Manager {
		m, err := guardscheduler.NewManager(g, asynq.PeriodicTaskManagerOpts{
			PeriodicTaskConfigProvider: &orderProvider{entries: order.Entries, say: say}, RedisConnOpt: conn, SchedulerOpts: opts, SyncInterval: 200 * time.Millisecond,
		}, guardscheduler.WithLease(guard.WithTTL(order.TTL)))
		if err != nil {
			return err
		}
		return m.Run()
	}
	s, err := guardscheduler.New(g, conn, opts, guardscheduler.WithLease(guard.WithTTL(order.TTL)), guardscheduler.WithCatchUp(order.CatchUp))
	if err != nil {
		return err
	}
	guardscheduler.SetClock(s, order.Ahead)
	for _, e := range order.Entries {
		if _, err := s.Register(e.Spec, asynq.NewTask(e.Type, nil), asynq.Queue(e.Queue)); err != nil {
			return err
		}
	}
	say("runs")
	return s.Run()
}

// A schedulerWorker is a scheduler process.
type schedulerWorker struct{ *processtest.Child }

// startScheduler starts a process, and returns when its entries are registered.
func startScheduler(t *testing.T, order schedulerOrder) *schedulerWorker {
	t.Helper()
	text, err := json.Marshal(order)
	require.NoError(t, err)
	w := &schedulerWorker{processtest.Self(t, workerEnv+"=scheduler", schedulerEnv+"="+string(text))}
	w.Says("runs")
	return w
}

// stop ends the process as an orchestrator does.
func (w *schedulerWorker) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, w.Signal(syscall.SIGTERM))
	w.Says("ended")
	w.Ends()
}

// schedulerSoon is for what happens in a second or so, on a machine that is busy with something
// else.
const schedulerSoon = 30 * time.Second

// tickOf returns the instant in a task's ID.
func tickOf(t *testing.T, id string) time.Time {
	t.Helper()
	_, rest, ok := strings.Cut(id, "@")
	require.True(t, ok, id)
	text, _, ok := strings.Cut(rest, "~")
	require.True(t, ok, id)
	return tickAt(t, text)
}

// pendingTicks returns how many tasks there are in a queue for each tick.
func pendingTicks(t *testing.T, in *asynq.Inspector, queue, kind string) map[time.Time]int {
	t.Helper()
	tasks, err := in.ListPendingTasks(queue, asynq.PageSize(10_000))
	if err != nil {
		require.ErrorIs(t, err, asynq.ErrQueueNotFound)
	}
	ticks := map[time.Time]int{}
	for _, task := range tasks {
		if task.Type == kind {
			ticks[tickOf(t, task.ID)]++
		}
	}
	return ticks
}

// requireTicks waits until there is a task for n ticks from the first one on, and fails if there
// are two for any.
func requireTicks(t *testing.T, first time.Time, n int, every time.Duration, ticks func() map[time.Time]int) {
	t.Helper()
	missing := func() (times []time.Time) {
		have := ticks()
		for i := range n {
			if tick := first.Add(time.Duration(i) * every); have[tick] == 0 {
				times = append(times, tick)
			}
		}
		return times
	}
	for over := time.Now().Add(schedulerSoon); len(missing()) > 0 && time.Now().Before(over); {
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	require.Empty(t, missing(), "lost ticks, of %d from %v on", n, first)
	for tick, n := range ticks() {
		require.Equal(t, 1, n, tick)
	}
}

func inspect(t *testing.T, addr string) *asynq.Inspector {
	t.Helper()
	in := asynq.NewInspector(asynq.RedisClientOpt{Addr: addr})
	t.Cleanup(func() { require.NoError(t, in.Close()) })
	return in
}

// until sleeps until the wall clock shows that: ticks are instants of it.
func until(at time.Time) { time.Sleep(time.Until(at)) } // ticks are instants of the real clock

// nextSecond returns the first second that comes whole.
func nextSecond() time.Time { return time.Now().Truncate(time.Second).Add(time.Second).UTC() }
