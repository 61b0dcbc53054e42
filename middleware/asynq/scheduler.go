package guardasynq

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// A Scheduler is asynq's Scheduler, of which any number can run in as many processes: each tick of
// an entry is enqueued once. All of them try. The first to come takes a lease on the tick,
// enqueues the task, and leaves a marker that the others find; where it dies on the way, one of
// those that wait for it goes on. It is safe for concurrent use, and has the methods of asynq's.
//
// A tick is the instant for which an entry fired, and not the instant at which it did so. An entry
// is known by the type and the payload of its task (and by TickName), so that an old and a new
// version of a program agree about ticks while one replaces the other, also where they differ in
// options or in headers. The ID of the task is made of that:
// "report:build@2026-11-21T08:00:00Z~k2tupns5ael3hagg". A TaskID option of the entry's own has no
// effect.
//
// "@every d" has its ticks at the multiples of d since 1970-01-01 00:00 UTC, the same in all
// processes, in place of d after the start of each.
//
// What it does not promise. The clock that is ahead decides when a tick is enqueued; clocks that
// differ by more than the window (WithTickMemory) less the catch-up (WithCatchUp) enqueue it
// twice. A replica that is killed in the instant between the enqueueing and the marker leaves the
// task, whose ID keeps the next replica from enqueueing it again; but if the task is finished and
// forgotten by then, about a TTL (WithTickTTL) later, it is enqueued twice. asynq.Retention, for a
// minute or more, closes that gap, too. A tick at which no process runs is not made up for. And a
// process whose clock is set far ahead and back again fires nothing until the clock has come there
// anew, as robfig/cron does: the others do.
//
// The hooks of asynq.SchedulerOpts are called where asynq calls them, but only in the process that
// enqueues; several ticks can be under way at a time. PostEnqueueFunc and EnqueueErrorHandler also
// learn that the Guard's store could not be asked: the task is then not enqueued by this process.
// None is told of a task that proves to be there already. asynq's history of enqueue events for
// each entry (Inspector.ListSchedulerEnqueueEvents) stays empty, and for "@every d" its list of
// entries shows the spec that asynq was given in its place.
type Scheduler struct {
	scheduler *asynq.Scheduler
	ticks     *tickRunner
	shutdown  sync.Once

	mu      sync.Mutex
	handles map[string]*asynq.Task // by the entry's ID
}

// NewScheduler is asynq.NewScheduler for any number of replicas, see Scheduler. opts can be nil,
// and is not changed. All replicas need a Guard over the same store. Applications that share the
// store, but not their queues, need guard.WithNamespace, or they take each other's ticks for their
// own.
//
// Settings that cannot work are *guard.SettingError, all of them in one error. Redis is not asked.
// Call Shutdown at the end, and close the Guard, which remains the caller's, after that.
func NewScheduler(g *guard.Guard, r asynq.RedisConnOpt, opts *asynq.SchedulerOpts, more ...SchedulerOption) (*Scheduler, error) {
	s := newTickSettings(g, more)
	if isNilConn(r) {
		s.Refuse("RedisConnOpt", nil, "must not be nil")
	}
	if s.Err != nil {
		return nil, s.Err
	}
	r = oneConn{r.MakeRedisClient()}
	ticks := newTickRunner(g, s, asynq.NewClient(r))
	return &Scheduler{
		scheduler: asynq.NewScheduler(r, ticks.takeOver(opts)),
		ticks:     ticks,
		handles:   map[string]*asynq.Task{},
	}, nil
}

// Register adds an entry, and returns its ID for Unregister. Its first tick is the first one after
// the call.
//
// A spec that cannot be parsed is a *guard.SettingError that names it. So is an entry that has the
// type and payload of another one and differs from it in options or headers, as of two such tasks
// that are due at the same instant only one would be enqueued: TickName tells them apart. With the
// same options they are fine: of ticks that they share there is one. Options inside the task are
// not looked at.
func (s *Scheduler) Register(cronspec string, task *asynq.Task, opts ...asynq.Option) (entryID string, err error) {
	e, err := newTickEntry(cronspec, task, opts, tickClock())
	if err != nil {
		return "", err
	}
	if err := s.ticks.add(e); err != nil {
		return "", err
	}
	id, err := s.scheduler.Register(e.firing, e.handle, e.shownOpts()...)
	if err != nil {
		s.ticks.remove(e.handle)
		return "", fmt.Errorf("guardasynq: register %q: %w", cronspec, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles[id] = e.handle
	return id, nil
}

// Unregister removes an entry. A tick that is being enqueued still is. It fails if there is no
// such entry.
func (s *Scheduler) Unregister(entryID string) error {
	if err := s.scheduler.Unregister(entryID); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks.remove(s.handles[entryID])
	delete(s.handles, entryID)
	return nil
}

// Start begins to enqueue, and returns at once. It fails if the Scheduler runs, or has been shut
// down.
func (s *Scheduler) Start() error {
	if s.ticks.ctx.Err() != nil {
		return errTickShutdown
	}
	return s.scheduler.Start()
}

// Run is Start, and then Shutdown when the process is sent SIGTERM or SIGINT. It also returns
// after a Shutdown by others.
func (s *Scheduler) Run() error {
	if err := s.Start(); err != nil {
		return err
	}
	s.ticks.awaitSignal()
	s.Shutdown()
	return nil
}

// Shutdown stops for good. Ticks for which this process waits are left to the others at once; one
// that it is enqueueing is finished, for which it takes up to as long as Redis lets a command
// wait. It can be called several times, and returns when all has ended.
func (s *Scheduler) Shutdown() {
	s.shutdown.Do(func() { s.ticks.shutdown(s.scheduler.Shutdown) })
}

// Ping asks the Redis of the queues whether it is there.
func (s *Scheduler) Ping() error { return s.scheduler.Ping() }

var errTickShutdown = errors.New("guardasynq: the scheduler has been shut down")

// awaitSignal returns when the process is asked to end, or after a shutdown.
func (r *tickRunner) awaitSignal() {
	ctx, stop := signal.NotifyContext(r.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
}

// oneConn has asynq's scheduler and the client use one connection pool, which closing the client
// closes: asynq never closes that of a scheduler that was not started.
type oneConn struct{ client any }

func (c oneConn) MakeRedisClient() any { return c.client }

// shutdown ends what waits, has asynq stop, which waits for ticks under way, and closes the
// client, which refuses where the connection is the caller's.
func (r *tickRunner) shutdown(stop func()) {
	r.cancel()
	stop()
	_ = r.client.Close()
}
