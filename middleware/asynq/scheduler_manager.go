package guardasynq

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// A PeriodicTaskManager is asynq's PeriodicTaskManager, of which any number can run in as many
// processes: each tick of a config is enqueued once, as Scheduler describes. It has the methods of
// asynq's.
//
// The provider of each process is asked on its own. While they differ, as one has heard of a
// change and another has not, a tick is enqueued if any of them has it.
type PeriodicTaskManager struct {
	manager  *asynq.PeriodicTaskManager
	ticks    *tickRunner
	shutdown sync.Once
}

// NewPeriodicTaskManager is asynq.NewPeriodicTaskManager for any number of replicas, see Scheduler
// and NewScheduler. opts is not changed. A RedisUniversalClient remains the caller's, to be closed
// after Shutdown.
//
// Configs of the same type and payload must have the same options and headers, unless they have a
// TickName, see Scheduler.Register: others are an error for the whole list. Start then fails, and
// a later list is not taken, so that what was there goes on.
func NewPeriodicTaskManager(g *guard.Guard, opts asynq.PeriodicTaskManagerOpts, more ...SchedulerOption) (*PeriodicTaskManager, error) {
	s := newTickSettings(g, more)
	if v := reflect.ValueOf(opts.PeriodicTaskConfigProvider); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		s.Refuse("PeriodicTaskConfigProvider", nil, "must not be nil")
	}
	if opts.RedisUniversalClient == nil && isNilConn(opts.RedisConnOpt) {
		s.Refuse("RedisConnOpt", nil, "must not be nil where there is no RedisUniversalClient")
	}
	if s.Err != nil {
		return nil, s.Err
	}
	var client *asynq.Client
	if opts.RedisUniversalClient != nil {
		client = asynq.NewClientFromRedisClient(opts.RedisUniversalClient)
	} else {
		opts.RedisConnOpt = oneConn{opts.RedisConnOpt.MakeRedisClient()}
		client = asynq.NewClient(opts.RedisConnOpt)
	}
	ticks := newTickRunner(g, s, client)
	opts.SchedulerOpts = ticks.takeOver(opts.SchedulerOpts)
	opts.PeriodicTaskConfigProvider = &tickProvider{provider: opts.PeriodicTaskConfigProvider, ticks: ticks}
	manager, err := asynq.NewPeriodicTaskManager(opts)
	if err != nil {
		ticks.shutdown(func() {})
		return nil, fmt.Errorf("guardasynq: %w", err)
	}
	return &PeriodicTaskManager{manager: manager, ticks: ticks}, nil
}

// Start asks the provider, begins to enqueue, and returns. It fails if the provider does, or its
// configs cannot be used, or after Shutdown.
func (m *PeriodicTaskManager) Start() error {
	if m.ticks.ctx.Err() != nil {
		return errTickShutdown
	}
	return m.manager.Start()
}

// Run is Start, and then Shutdown when the process is sent SIGTERM or SIGINT. It also returns
// after a Shutdown by others.
func (m *PeriodicTaskManager) Run() error {
	if err := m.Start(); err != nil {
		return err
	}
	m.ticks.awaitSignal()
	m.Shutdown()
	return nil
}

// Shutdown stops for good, see Scheduler.Shutdown.
func (m *PeriodicTaskManager) Shutdown() {
	m.shutdown.Do(func() { m.ticks.shutdown(m.manager.Shutdown) })
}

// A tickProvider is the caller's provider, with tasks by which the entries can be told when they
// fire. asynq's manager asks again and again, compares what it gets with what it has, and keeps
// the tasks that it got first: so the same config must come with the same task.
type tickProvider struct {
	provider asynq.PeriodicTaskConfigProvider
	ticks    *tickRunner

	mu    sync.Mutex
	known map[string]*tickEntry // those of the last list
}

// GetConfigs returns the caller's configs for asynq.
func (p *tickProvider) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	configs, err := p.provider.GetConfigs()
	if err != nil {
		return nil, err
	}
	for _, c := range configs {
		if c == nil || c.Task == nil || c.Cronspec == "" {
			// asynq refuses the whole list then, and keeps what it has: so does this
			return configs, nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[string]*tickEntry{}
	ids := map[string]*tickEntry{}
	var out []*asynq.PeriodicTaskConfig
	for _, c := range configs {
		e, err := newTickEntry(c.Cronspec, c.Task, c.Opts, tickClock())
		if err != nil {
			// asynq logs a spec that it cannot parse, and leaves it out. So it gets one that says
			// why.
			out = append(out, &asynq.PeriodicTaskConfig{Cronspec: fmt.Sprintf("%s (%v)", c.Cronspec, err), Task: c.Task, Opts: c.Opts})
			continue
		}
		if other := ids[e.id]; other != nil {
			if err := e.conflict(other); err != nil {
				return nil, err
			}
		}
		ids[e.id] = e
		identity := e.identity()
		if known[identity] != nil {
			continue // the manager would never get rid of the second of them
		}
		if old := p.known[identity]; old != nil {
			// The task may have other headers, of which asynq takes no notice.
			e.handle = old.handle
		}
		known[identity] = e
		out = append(out, &asynq.PeriodicTaskConfig{Cronspec: e.firing, Task: e.handle, Opts: e.shownOpts()})
	}
	p.known = known
	p.ticks.replace(known)
	return out, nil
}

// identity returns what asynq's manager knows an entry by.
func (e *tickEntry) identity() string {
	return fmt.Sprintf("%q %q %q %q", e.spec, e.task.Type(), e.task.Payload(), tickOptions(e.opts))
}

// replace makes these the entries that are known. Those that were known before go on where they
// were.
func (r *tickRunner) replace(entries map[string]*tickEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[*asynq.Task]*tickEntry, len(entries))
	for _, e := range entries {
		if old := r.entries[e.handle]; old != nil {
			e.last = old.last
		}
		next[e.handle] = e
	}
	r.entries = next
}
