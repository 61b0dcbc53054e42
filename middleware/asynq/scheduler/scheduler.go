package guardscheduler

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// A Scheduler is asynq's Scheduler, of which any number can run in as many processes: each tick of
// an entry is enqueued once. It is safe for concurrent use, and has the methods of asynq's.
//
// The type and payload of its task, and its TickName, identify an entry. So an old and a new
// version of a program agree about ticks during a deployment, even if their options or headers
// differ. The ID of the task is made of these:
// "report:build@2026-11-21T08:00:00Z~k2tupns5ael3hagg". A TaskID option of the entry's own has no
// effect.
//
// "@every d" has its ticks at the multiples of d since 1970-01-01 00:00 UTC, the same in all
// processes, in place of d after the start of each.
//
// The hooks of asynq.SchedulerOpts are called when asynq calls them, but only in the process that
// enqueues, several at a time for different entries. PostEnqueueFunc and EnqueueErrorHandler also
// receive an error, once for a tick, if the store or the queue could not be asked for 5 s. This
// process, or another, tries the tick again all the same. They get a *MissedError for ticks that
// were given up.
//
// asynq's list of entries (Inspector.SchedulerEntries, asynqmon) shows the entries of each
// process. Its history of enqueue events for each entry stays empty.
type Scheduler struct {
	shown    *asynq.Scheduler // keeps asynq's list of entries, and enqueues nothing
	runner   *runner
	client   *asynq.Client
	shutdown sync.Once

	mu      sync.Mutex
	started bool
	entries map[string]*entry // by ID
}

// New is asynq.NewScheduler for any number of replicas. opts can be nil, and is not changed. All
// replicas need a Guard over the same store, whose backend is a driver.Ledger, as all of this
// module are. The Guard needs guard.WithNamespace, or guard.WithoutNamespace: applications that
// share the store, but not their queues, would take each other's ticks for their own.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. Redis is not asked.
// Call Shutdown at the end, and close the Guard, which remains the caller's, after that.
func New(g *guard.Guard, r asynq.RedisConnOpt, opts *asynq.SchedulerOpts, more ...Option) (*Scheduler, error) {
	s := newSettings(g, more)
	if isNil(r) {
		s.Refuse("RedisConnOpt", nil, "must not be nil")
	}
	if s.Err != nil {
		return nil, s.Err
	}
	// one connection pool, which closing the client closes: asynq never closes that of a scheduler
	// that was not started
	conn := oneConn{r.MakeRedisClient()}
	return newScheduler(g, s, asynq.NewClient(conn), opts, func(own *asynq.SchedulerOpts) *asynq.Scheduler { return asynq.NewScheduler(conn, own) }), nil
}

type oneConn struct{ client any }

func (c oneConn) MakeRedisClient() any { return c.client }

func newScheduler(g *guard.Guard, s settings, client *asynq.Client, opts *asynq.SchedulerOpts, shown func(*asynq.SchedulerOpts) *asynq.Scheduler) *Scheduler {
	var own asynq.SchedulerOpts
	if opts != nil {
		own = *opts
	}
	// asynq calls it in a goroutine that cron has started for this firing alone. It returns
	// nothing by which it could keep asynq from enqueueing; so it ends the goroutine, whose
	// deferred functions run, by which cron counts the jobs under way.
	own.PreEnqueueFunc = func(*asynq.Task, []asynq.Option) { runtime.Goexit() }
	own.PostEnqueueFunc = nil
	own.EnqueueErrorHandler = nil //nolint:staticcheck // deprecated, and in use
	return &Scheduler{shown: shown(&own), runner: newRunner(g, s, client, opts), client: client, entries: map[string]*entry{}}
}

// Register adds an entry, and returns its ID for Unregister. Its first tick is the first one after
// the call. If the replicas know the entry, it is the first one after the newest that they have
// handled.
//
// A spec that cannot be parsed is a *guard.SettingError that names it. So is an entry with the
// type and payload of another one, but with other options or headers. Of two such tasks that are
// due at the same instant, only one would be enqueued. TickName distinguishes them. Entries with
// the same options are accepted: a tick that they share is enqueued once. Register them before
// Start: an entry that is alone with its task takes another spec of the task, which came after its
// own, for the one that has replaced it. Register does not compare options inside the task.
func (s *Scheduler) Register(cronspec string, task *asynq.Task, opts ...asynq.Option) (entryID string, err error) {
	e, err := newEntry(cronspec, task, opts, s.runner.now())
	if err != nil {
		return "", err
	}
	return s.register(e)
}

func (s *Scheduler) register(e *entry) (entryID string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.entries {
		if err := e.conflict(other); err != nil {
			return "", err
		}
	}
	id, err := s.shown.Register(shownSpec(e.spec, e.schedule), e.task, e.opts...)
	if err != nil {
		return "", fmt.Errorf("guardscheduler: register %q: %w", e.spec, err)
	}
	s.runner.add(e)
	s.entries[id] = e
	if s.started {
		s.runner.start(e)
	}
	return id, nil
}

// Unregister removes an entry. A tick that is being enqueued still is. It fails if there is no
// such entry.
func (s *Scheduler) Unregister(entryID string) error {
	if err := s.shown.Unregister(entryID); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := s.entries[entryID]; gone != nil {
		s.runner.remove(gone)
	}
	delete(s.entries, entryID)
	return nil
}

// specOf returns the idAndSpec of an entry, or "" if there is none of that ID.
func (s *Scheduler) specOf(entryID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[entryID]; e != nil {
		return e.idAndSpec()
	}
	return ""
}

var errShutdown = errors.New("guardscheduler: it has been shut down")

// Start begins to enqueue, and returns at once. It fails if the Scheduler runs, or has been shut
// down.
func (s *Scheduler) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runner.ctx.Err() != nil {
		return errShutdown
	}
	if err := s.shown.Start(); err != nil {
		return err
	}
	s.started = true
	for _, e := range s.entries {
		s.runner.start(e)
	}
	return nil
}

// Run is Start, and then Shutdown when the process is sent SIGTERM or SIGINT. It also returns
// after a Shutdown by others.
func (s *Scheduler) Run() error {
	if err := s.Start(); err != nil {
		return err
	}
	s.runner.awaitSignal()
	s.Shutdown()
	return nil
}

// Shutdown stops for good. Other processes take over the ticks for which this one waits. It
// finishes a tick that it is enqueueing, which takes at most as long as a command can wait for
// Redis. It can be called several times, and returns when all has ended.
func (s *Scheduler) Shutdown() {
	s.shutdown.Do(func() {
		s.mu.Lock() // no entry starts after this
		s.started = false
		s.runner.cancel()
		s.mu.Unlock()
		s.runner.wg.Wait()
		s.shown.Shutdown()
		_ = s.client.Close() // it refuses if the connection is the caller's
	})
}

// Ping asks the Redis of the queues whether it is there.
func (s *Scheduler) Ping() error { return s.shown.Ping() }

// awaitSignal returns when the process is asked to end, or after a shutdown.
func (r *runner) awaitSignal() {
	ctx, stop := signal.NotifyContext(r.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
}
