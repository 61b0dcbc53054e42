package guardscheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// A Manager is asynq's PeriodicTaskManager, of which any number can run in as many processes: each
// tick of a config is enqueued once, as Scheduler describes. It has the methods of asynq's.
//
// The provider of each process is asked separately. While they differ, because only one knows of a
// change, a tick is enqueued if any of them has it.
//
// A config that was left out for a while has no ticks of that time. While the Manager runs, one
// that comes back counts from one SyncInterval ago.
type Manager struct {
	scheduler *Scheduler
	provider  asynq.PeriodicTaskConfigProvider
	interval  time.Duration
	log       func(...any)
	wg        sync.WaitGroup

	mu     sync.Mutex
	known  map[string]string // the IDs of the entries, by what identifies them
	synced bool              // once, at least
}

// defaultSyncInterval is asynq's.
const defaultSyncInterval = 3 * time.Minute

// NewManager is asynq.NewPeriodicTaskManager for any number of replicas, see Scheduler and New.
// opts is not changed. A RedisUniversalClient remains the caller's, to be closed after Shutdown.
//
// Configs of the same type and payload must have the same options and headers, unless they have a
// TickName, see Scheduler.Register: others are an error for the whole list. Start then fails. A
// later list with such an error is not used, and the previous entries continue. Such errors, and
// those of single configs, go to the Logger of the SchedulerOpts, or else to slog.Default.
func NewManager(g *guard.Guard, opts asynq.PeriodicTaskManagerOpts, more ...Option) (*Manager, error) {
	s := newSettings(g, more)
	if isNil(opts.PeriodicTaskConfigProvider) {
		s.Refuse("PeriodicTaskConfigProvider", nil, "must not be nil")
	}
	if opts.SyncInterval < 0 {
		s.Refuse("SyncInterval", opts.SyncInterval, "must not be negative")
	}
	if opts.RedisUniversalClient == nil && isNil(opts.RedisConnOpt) {
		s.Refuse("RedisConnOpt", nil, "must not be nil if there is no RedisUniversalClient")
	}
	if s.Err != nil {
		return nil, s.Err
	}
	m := &Manager{provider: opts.PeriodicTaskConfigProvider, interval: opts.SyncInterval, known: map[string]string{}}
	if m.interval == 0 {
		m.interval = defaultSyncInterval
	}
	m.log = func(args ...any) { slog.Default().Error(fmt.Sprint(args...)) }
	if opts.SchedulerOpts != nil && opts.Logger != nil {
		m.log = opts.Logger.Error
	}
	var err error
	if rdb := opts.RedisUniversalClient; rdb != nil {
		m.scheduler = newScheduler(g, s, asynq.NewClientFromRedisClient(rdb), opts.SchedulerOpts,
			func(own *asynq.SchedulerOpts) *asynq.Scheduler { return asynq.NewSchedulerFromRedisClient(rdb, own) })
	} else {
		m.scheduler, err = New(g, opts.RedisConnOpt, opts.SchedulerOpts, more...)
	}
	return m, err
}

// Start asks the provider, begins to enqueue, and returns. It fails if the provider does, or its
// configs cannot be used, or after Shutdown.
func (m *Manager) Start() error {
	if m.scheduler.runner.ctx.Err() != nil {
		return errShutdown
	}
	if err := m.sync(); err != nil {
		return err
	}
	if err := m.scheduler.Start(); err != nil {
		return err
	}
	m.wg.Go(func() {
		ticker := time.NewTicker(m.interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := m.sync(); err != nil {
					m.log(err)
				}
			case <-m.scheduler.runner.ctx.Done():
				return
			}
		}
	})
	return nil
}

// Run is Start, and then Shutdown when the process is sent SIGTERM or SIGINT. It also returns
// after a Shutdown by others.
func (m *Manager) Run() error {
	if err := m.Start(); err != nil {
		return err
	}
	m.scheduler.runner.awaitSignal()
	m.Shutdown()
	return nil
}

// Shutdown stops for good, see Scheduler.Shutdown.
func (m *Manager) Shutdown() {
	m.scheduler.Shutdown()
	m.wg.Wait()
}

// sync makes the entries match the provider's configs. An error leaves them unchanged.
func (m *Manager) sync() error {
	configs, err := m.provider.GetConfigs()
	if err != nil {
		return fmt.Errorf("guardscheduler: ask the provider: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted, err := m.read(configs)
	if err != nil {
		return fmt.Errorf("guardscheduler: configs of the provider: %w", err)
	}
	floor := m.floor()
	replaced := map[string]bool{} // perhaps by other options or headers: its ticks count on
	for identity, id := range m.known {
		if wanted[identity] == nil {
			replaced[m.scheduler.specOf(id)] = true
			_ = m.scheduler.Unregister(id) // it is there
			delete(m.known, identity)
		}
	}
	for identity, e := range wanted {
		if m.known[identity] != "" {
			continue
		}
		if !replaced[e.idAndSpec()] {
			e.floor = floor
		}
		id, err := m.scheduler.register(e)
		if err != nil {
			m.log(err)
			continue
		}
		m.known[identity] = id
	}
	return nil
}

// floor returns the instant up to which a config that a sync adds has no ticks: it was enabled
// after the previous sync. A Manager that starts does not know that, so its floor is zero.
func (m *Manager) floor() time.Time {
	if !m.synced {
		m.synced = true
		return time.Time{}
	}
	return m.scheduler.runner.now().Add(-m.interval)
}

// read returns the entries of the usable configs, by what identifies them, and logs the others. A
// list that cannot be used as a whole is an error.
func (m *Manager) read(configs []*asynq.PeriodicTaskConfig) (map[string]*entry, error) {
	wanted := map[string]*entry{}
	byID := map[string]*entry{}
	for i, c := range configs {
		if c == nil || c.Task == nil || c.Cronspec == "" {
			return nil, fmt.Errorf("config %d must have a Cronspec and a Task", i)
		}
		e, err := newEntry(c.Cronspec, c.Task, c.Opts, m.scheduler.runner.now())
		if err != nil {
			m.log(err)
			continue
		}
		if other := byID[e.id]; other != nil {
			err = errors.Join(err, e.conflict(other))
		}
		if err != nil {
			return nil, err
		}
		byID[e.id] = e
		wanted[fmt.Sprintf("%q %q %q %q %q", e.spec, c.Task.Type(), c.Task.Payload(), optionTexts(c.Opts), c.Task.Headers())] = e
	}
	return wanted, nil
}
