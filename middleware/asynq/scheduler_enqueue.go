package guardasynq

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// A tickRunner enqueues the tasks of entries that fire.
type tickRunner struct {
	tickSettings
	guard    *guard.Guard
	client   *asynq.Client
	location *time.Location

	// What the caller has set in SchedulerOpts.
	pre     func(*asynq.Task, []asynq.Option)
	post    func(*asynq.TaskInfo, error)
	onError func(*asynq.Task, []asynq.Option, error)

	ctx    context.Context // ends with Shutdown: asynq passes none
	cancel context.CancelFunc

	// turn is held while a task is enqueued. asynq appends the options of the call to those inside
	// the task, in place where there is room: of two tasks with such options in common, one could
	// get the other's ID. A mutex could not be waited for with a context.
	turn chan struct{}

	mu      sync.Mutex
	entries map[*asynq.Task]*tickEntry // by their handles
}

func newTickRunner(g *guard.Guard, s tickSettings, client *asynq.Client) *tickRunner {
	r := &tickRunner{
		tickSettings: s,
		guard:        g,
		client:       client,
		turn:         make(chan struct{}, 1),
		entries:      map[*asynq.Task]*tickEntry{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// takeOver returns the options for asynq's scheduler: the caller's, with r in the place of the
// hooks.
func (r *tickRunner) takeOver(opts *asynq.SchedulerOpts) *asynq.SchedulerOpts {
	var own asynq.SchedulerOpts
	if opts != nil {
		own = *opts
	}
	r.pre, r.post = own.PreEnqueueFunc, own.PostEnqueueFunc
	own.PreEnqueueFunc, own.PostEnqueueFunc = r.fire, nil
	//nolint:staticcheck // deprecated, and in use
	r.onError, own.EnqueueErrorHandler = own.EnqueueErrorHandler, nil
	r.location = own.Location
	if r.location == nil {
		r.location = time.UTC
	}
	return &own
}

// add makes an entry known.
func (r *tickRunner) add(e *tickEntry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.entries {
		if err := e.conflict(other); err != nil {
			return err
		}
	}
	r.entries[e.handle] = e
	return nil
}

// remove forgets an entry.
func (r *tickRunner) remove(handle *asynq.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, handle)
}

// fire is asynq's PreEnqueueFunc. It enqueues in asynq's stead, and must then keep asynq from
// enqueueing, too. It cannot say so, as it returns nothing; but it is called in a goroutine that
// cron has started for this firing alone, and that has nothing to do but to enqueue: so it ends
// that. Its deferred functions run, by which cron counts the jobs under way.
func (r *tickRunner) fire(handle *asynq.Task, _ []asynq.Option) {
	e, ticks := r.take(handle)
	for _, tick := range ticks {
		if r.ctx.Err() != nil {
			break
		}
		r.enqueue(e, tick)
	}
	runtime.Goexit()
}

// take returns the ticks of an entry that are due, and the entry as it is now. There are none
// where it has just been removed.
func (r *tickRunner) take(handle *asynq.Task) (tickEntry, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[handle]
	if e == nil {
		return tickEntry{}, nil
	}
	var ticks []time.Time
	ticks, e.last = dueTicks(e.schedule, e.last, tickClock().In(r.location), r.catchUp)
	return *e, ticks
}

// A tickAttempt is what came of enqueueing a task.
type tickAttempt struct {
	info  *asynq.TaskInfo
	there bool  // the task had been enqueued before
	err   error // of asynq
}

// enqueue enqueues the task of a tick, unless another process does.
func (r *tickRunner) enqueue(e tickEntry, tick time.Time) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waits := context.AfterFunc(r.ctx, cancel)
	taskID, key := e.tickNames(tick)
	var did tickAttempt
	err := r.guard.Do(ctx, key, func(ctx context.Context) error {
		if !waits() { // From here on a shutdown waits: this process alone may know of the tick.
			return r.ctx.Err()
		}
		did = r.attempt(ctx, e, taskID)
		if errors.Is(did.err, asynq.ErrDuplicateTask) {
			return nil // asynq.Unique leaves this tick out, and should do so once
		}
		return did.err
	}, r.leaseOptions(tickKind(e.task))...)
	waits()

	switch {
	case did.info != nil:
		if r.post != nil {
			r.post(did.info, nil)
		}
	case did.err != nil:
		r.report(e, taskID, did.err)
	case did.there, err == nil, errors.Is(err, guard.ErrDone), errors.Is(err, guard.ErrBusy), errors.Is(err, context.Canceled) && r.ctx.Err() != nil:
	default:
		r.report(e, taskID, err)
	}
}

// tickKind returns what a lease for the task is named, or "" if its type is no name.
func tickKind(task *asynq.Task) string {
	if kind := task.Type(); len(kind) <= 128 && !strings.Contains(kind, "\x00") {
		return kind
	}
	return ""
}

// report tells the caller's hooks that a task was not enqueued.
func (r *tickRunner) report(e tickEntry, taskID string, err error) {
	err = fmt.Errorf("guardasynq: enqueue %q: %w", taskID, err)
	if r.post != nil {
		r.post(nil, err)
	}
	if r.onError != nil {
		r.onError(e.task, e.opts, err)
	}
}

// attempt enqueues the task under its lease. A task that is there already was enqueued by a
// process that died before it could leave its marker, or by this one, when the answer was lost.
func (r *tickRunner) attempt(ctx context.Context, e tickEntry, taskID string) tickAttempt {
	if r.pre != nil {
		r.pre(e.task, e.opts)
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return tickAttempt{err: context.Cause(ctx)}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*r.ttl) // the next one waits for up to three
	defer cancel()
	// the caller's may have room at its end
	opts := append(slices.Clone(e.opts), asynq.TaskID(taskID))
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		info, err := r.client.EnqueueContext(ctx, e.task, opts...)
		switch {
		case err == nil:
			return tickAttempt{info: info}
		case errors.Is(err, asynq.ErrTaskIDConflict):
			return tickAttempt{there: true}
		case errors.Is(err, asynq.ErrDuplicateTask):
			return tickAttempt{err: err}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return tickAttempt{err: err}
		case <-r.ctx.Done(): // it was tried; another process goes on
			return tickAttempt{err: err}
		}
	}
}
