package guardscheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// enqueueTimeout bounds how long it may take to enqueue a task.
const enqueueTimeout = 5 * time.Second

// A runner enqueues the ticks of entries.
type runner struct {
	settings
	guard    *guard.Guard
	ledger   driver.Ledger
	client   enqueuer
	now      func() time.Time
	location *time.Location
	pre      func(*asynq.Task, []asynq.Option)
	post     func(*asynq.TaskInfo, error)
	onError  func(*asynq.Task, []asynq.Option, error)

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	entries map[*entry]bool // that are registered

	// slot is held while a task is enqueued. asynq appends the options of the call to those inside
	// the task, in place if there is room: of two tasks with such options in common, one could get
	// the other's ID. It is no mutex, because a wait for it ends with a context.
	slot chan struct{}
}

// An enqueuer is an asynq.Client.
type enqueuer interface {
	EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error)
}

func newRunner(g *guard.Guard, s settings, client enqueuer, opts *asynq.SchedulerOpts) *runner {
	r := &runner{settings: s, guard: g, client: client, now: wallClock, location: time.UTC, slot: make(chan struct{}, 1), entries: map[*entry]bool{}}
	r.ledger, _ = g.Adapter().Ledger(s.lease...)
	if opts != nil {
		r.pre, r.post = opts.PreEnqueueFunc, opts.PostEnqueueFunc
		r.onError = opts.EnqueueErrorHandler //nolint:staticcheck // deprecated, and in use
		if opts.Location != nil {
			r.location = opts.Location
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// wallClock returns the time. It has no monotonic reading: ticks are instants of the wall clock.
func wallClock() time.Time { return time.Now().Round(0) }

// add registers an entry, before start.
func (r *runner) add(e *entry) {
	spec := ticks.SpecOf(e.spec, e.schedule, ticks.Location(e.schedule, r.location))
	e.marks = ticks.Marks{Ledger: r.ledger, Name: "asynq-schedule:" + e.id, Spec: spec}
	e.remaining.Schedule = e.schedule
	e.ctx, e.stop = context.WithCancel(r.ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[e] = true
}

// remove undoes add, and start.
func (r *runner) remove(e *entry) {
	e.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, e)
}

// isOnlySpec reports whether no entry for the same task has another spec.
func (r *runner) isOnlySpec(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.entries {
		if other.id == e.id && other.marks.Spec.Print != e.marks.Spec.Print {
			return false
		}
	}
	return true
}

// start looks after an entry until it is removed.
func (r *runner) start(e *entry) { r.wg.Go(func() { r.run(e.ctx, e) }) }

// enqueue ensures that the task of a tick is enqueued, by this process or another. An error means
// that it may not be. A call that runs when ctx ends is finished: this process alone may know of
// the tick.
func (r *runner) enqueue(ctx context.Context, e *entry, tick time.Time) error {
	taskID, key := e.tickNames(tick)
	var info *asynq.TaskInfo
	var duplicate error
	err := r.guard.Do(ctx, key, func(under context.Context) (err error) {
		info, err = r.attempt(under, e, taskID)
		if errors.Is(err, asynq.ErrDuplicateTask) {
			duplicate = err // asynq.Unique leaves this tick out, and should do so once
			return nil
		}
		return err
	}, append(r.leaseOptions(e.task.Type()), r.guard.Adapter().Detached())...)
	switch {
	case info != nil:
		r.observe(e, Outcome{Tick: tick, Ticks: 1, Result: Enqueued})
		if r.post != nil {
			r.post(info, nil)
		}
		return nil // its ID keeps out another one, if the marker is missing
	case duplicate != nil:
		r.report(e, tick, fmt.Errorf("guardscheduler: enqueue %q: %w", taskID, duplicate))
		return nil //nolint:nilerr // it was reported, and is not tried again
	case err == nil, errors.Is(err, guard.ErrDone):
		return nil
	case ctx.Err() != nil, errors.Is(err, guard.ErrBusy):
		return err
	}
	err = fmt.Errorf("guardscheduler: enqueue %q: %w", taskID, err)
	r.reportOnce(e, tick, err)
	return err
}

// attempt enqueues the task under its lease. It returns nothing for a task that is there already:
// that was enqueued by a process that died before it could leave its marker, or by this one, when
// the answer was lost.
func (r *runner) attempt(ctx context.Context, e *entry, taskID string) (*asynq.TaskInfo, error) {
	if r.pre != nil {
		r.pre(e.task, e.opts)
	}
	ctx, cancel := context.WithTimeout(ctx, enqueueTimeout)
	defer cancel()
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// the caller's options may have room at their end
	info, err := r.client.EnqueueContext(ctx, e.task, append(slices.Clone(e.opts), asynq.TaskID(taskID))...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil, nil
	}
	return info, err
}
