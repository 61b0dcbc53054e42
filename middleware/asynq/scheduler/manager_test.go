package guardscheduler_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// A configList is a provider whose list changes. It makes new tasks each time.
type configList struct {
	mu    sync.Mutex
	list  func() []*asynq.PeriodicTaskConfig
	err   error
	asked int
}

func (c *configList) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.err != nil || c.list == nil {
		return nil, c.err
	}
	return c.list(), nil
}

// set changes the list, and waits until it has been taken.
func (c *configList) set(t *testing.T, list func() []*asynq.PeriodicTaskConfig) {
	t.Helper()
	c.mu.Lock()
	c.list = list
	asked := c.asked
	c.mu.Unlock()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.asked >= asked+3 // the second one has begun when the first was done with
	}, schedulerSoon, 10*time.Millisecond)
}

// silent is a Logger.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

func everySecond(kind string, opts ...asynq.Option) *asynq.PeriodicTaskConfig {
	return &asynq.PeriodicTaskConfig{Cronspec: "@every 1s", Task: asynq.NewTask(kind, nil), Opts: opts}
}

func (s *schedulerSite) manager(list *configList) *guardscheduler.Manager {
	m, err := guardscheduler.NewManager(s.guard(), asynq.PeriodicTaskManagerOpts{
		PeriodicTaskConfigProvider: list,
		RedisConnOpt:               s.conn(),
		SchedulerOpts:              &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, Logger: silent{}},
		SyncInterval:               50 * time.Millisecond,
	})
	require.NoError(s.t, err)
	return m
}

// more waits until a queue has n tasks more than now.
func (s *schedulerSite) more(queue string, n int) {
	s.t.Helper()
	s.enqueued(queue, len(s.pending(queue))+n)
}

// newest returns the task of the newest tick in a queue.
func (s *schedulerSite) newest(queue string) *asynq.TaskInfo {
	return slices.MaxFunc(s.pending(queue), func(a, b *asynq.TaskInfo) int { return tickOf(s.t, a.ID).Compare(tickOf(s.t, b.ID)) })
}

func TestManager_followsItsProvider(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	list := &configList{list: func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{everySecond("a", asynq.Queue("a"))}
	}}
	replicas := []*guardscheduler.Manager{site.manager(list), site.manager(list)}
	for _, m := range replicas {
		require.NoError(t, m.Start())
	}
	site.enqueued("a", 3) // also after the provider was asked again, and made another task

	list.set(t, func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{
			everySecond("b", asynq.Queue("b")),
			everySecond("b", asynq.Queue("b")), // twice
			{Cronspec: "never", Task: asynq.NewTask("bad", nil)},
			{Cronspec: "CRON_TZ=UTC", Task: asynq.NewTask("bad", nil)},
			{Cronspec: "@every 1s", Task: asynq.NewTask("", nil)},
		}
	})
	removed := time.Now()
	site.more("b", 3)

	// Lists that asynq refuses as a whole change nothing.
	list.set(t, func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{everySecond("a", asynq.Queue("a")), nil}
	})
	site.more("b", 2)
	list.set(t, func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{everySecond("a", asynq.Queue("a")), everySecond("a", asynq.Queue("b"))}
	})
	site.more("b", 2)
	require.False(t, tickOf(t, site.newest("a").ID).After(removed), "a was removed")

	// Another header is the same config for asynq.
	list.set(t, func() []*asynq.PeriodicTaskConfig {
		c := everySecond("b", asynq.Queue("b"))
		c.Task = asynq.NewTaskWithHeaders("b", nil, map[string]string{"version": "2"})
		return []*asynq.PeriodicTaskConfig{c}
	})
	site.more("b", 2)
	require.Equal(t, "2", site.newest("b").Headers["version"])

	list.set(t, nil)
	removed = time.Now()
	list.set(t, func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{everySecond("a", asynq.Queue("a"))}
	})
	site.more("a", 2)
	require.False(t, tickOf(t, site.newest("b").ID).After(removed), "b was removed")
	for _, m := range replicas {
		requireSoon(t, m.Shutdown)
		requireSoon(t, m.Shutdown)
		require.Error(t, m.Start())
		require.Error(t, m.Run())
	}
}

func TestManager_aConfigThatIsEnabledAgainHasNoTicksOfTheTimeBetween(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	enabled := func() []*asynq.PeriodicTaskConfig { return []*asynq.PeriodicTaskConfig{everySecond("a")} }
	list := &configList{list: enabled}
	m := site.manager(list)
	require.NoError(t, m.Start())
	t.Cleanup(m.Shutdown)
	site.enqueued("default", 1)
	list.set(t, nil)
	disabled := time.Now().Add(time.Second) // a tick may be under way
	time.Sleep(4 * time.Second)             // of real ticks
	again := time.Now().Add(-time.Second)
	list.set(t, enabled)
	site.more("default", 2)
	for _, info := range site.pending("default") {
		tick := tickOf(t, info.ID)
		require.False(t, tick.After(disabled) && tick.Before(again), tick)
	}
}

// The same spec continues where it was, so that a tick that waits for the store is not left out.
func TestManager_aConfigWithAnotherHeaderGoesOn(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	site.queues = redistest.Start(t)
	site.in = inspect(t, site.queues.Addr())
	list := &configList{list: func() []*asynq.PeriodicTaskConfig { return []*asynq.PeriodicTaskConfig{everySecond("a")} }}
	m := site.manager(list)
	require.NoError(t, m.Start())
	t.Cleanup(m.Shutdown)
	site.enqueued("default", 1)
	site.server.Freeze()
	time.Sleep(3 * time.Second) // of real ticks
	changed := time.Now()
	list.set(t, func() []*asynq.PeriodicTaskConfig {
		c := everySecond("a")
		c.Task = asynq.NewTaskWithHeaders("a", nil, map[string]string{"version": "2"})
		return []*asynq.PeriodicTaskConfig{c}
	})
	site.server.Thaw()
	var newest time.Time
	require.Eventually(t, func() bool {
		newest = tickOf(t, site.newest("default").ID)
		return newest.After(changed)
	}, schedulerSoon, 20*time.Millisecond)
	ticks := map[time.Time]bool{}
	for _, info := range site.pending("default") {
		ticks[tickOf(t, info.ID)] = true
	}
	require.True(t, ticks[newest.Add(-time.Second)] && ticks[newest.Add(-2*time.Second)] && ticks[newest.Add(-3*time.Second)], ticks)
}

// asynq tells configs apart by a hash in which these four are one.
func TestManager_tellsApartWhatAsynqDoesNot(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	config := func(spec, kind, payload string) *asynq.PeriodicTaskConfig {
		return &asynq.PeriodicTaskConfig{Cronspec: spec, Task: asynq.NewTask(kind, []byte(payload)), Opts: []asynq.Option{asynq.Queue(fmt.Sprintf("%s-%s", kind, payload))}}
	}
	list := &configList{list: func() []*asynq.PeriodicTaskConfig { return []*asynq.PeriodicTaskConfig{config("@every 1s", "a", "bc")} }}
	m := site.manager(list)
	require.NoError(t, m.Start())
	t.Cleanup(m.Shutdown)
	list.set(t, func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{config("@every 1s", "a", "bc"), config("@every 1s", "ab", "c"), config("@every 2s", "x", "y")}
	})
	site.more("ab-c", 2)
	site.more("x-y", 1)
	list.set(t, func() []*asynq.PeriodicTaskConfig { return []*asynq.PeriodicTaskConfig{config("@every 3s", "x", "y")} })
	begin := time.Now()
	site.more("x-y", 2)
	for _, info := range site.pending("x-y") {
		if tick := tickOf(t, info.ID); tick.After(begin) {
			require.Zero(t, tick.Unix()%3, tick)
		}
	}
}

func TestManager_worksOverAClientOfTheCallers(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	rdb := site.server.Client(t)
	list := &configList{list: func() []*asynq.PeriodicTaskConfig { return []*asynq.PeriodicTaskConfig{everySecond("a")} }}
	m, err := guardscheduler.NewManager(site.guard(), asynq.PeriodicTaskManagerOpts{
		PeriodicTaskConfigProvider: list, RedisUniversalClient: rdb, SchedulerOpts: &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel},
	})
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- m.Run() }()
	site.enqueued("default", 2)
	requireSoon(t, m.Shutdown)
	require.NoError(t, <-ran)
	require.NoError(t, rdb.Ping(t.Context()).Err(), "it is not closed")
}

func TestManager_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	var noList *configList
	_, err = guardscheduler.NewManager(nil, asynq.PeriodicTaskManagerOpts{PeriodicTaskConfigProvider: noList, SyncInterval: -1}, guardscheduler.WithCatchUp(-1))
	for _, name := range []string{"guard", "PeriodicTaskConfigProvider", "SyncInterval", "RedisConnOpt", "WithCatchUp"} {
		require.ErrorContains(t, err, name)
	}
	var setting *guard.SettingError
	require.ErrorAs(t, err, &setting)

	list := &configList{err: errors.New("no database")}
	opts := asynq.PeriodicTaskManagerOpts{PeriodicTaskConfigProvider: list, RedisConnOpt: asynq.RedisClientOpt{}}
	m, err := guardscheduler.NewManager(g, opts)
	require.NoError(t, err)
	require.ErrorContains(t, m.Start(), "no database")
	list.err, list.list = nil, func() []*asynq.PeriodicTaskConfig {
		return []*asynq.PeriodicTaskConfig{everySecond("a"), everySecond("a", asynq.Queue("b"))}
	}
	require.ErrorContains(t, m.Start(), "TickName")
	list.list = func() []*asynq.PeriodicTaskConfig { return []*asynq.PeriodicTaskConfig{nil} }
	require.ErrorContains(t, m.Start(), "config 0 must have a Cronspec and a Task")
	m.Shutdown()
}
