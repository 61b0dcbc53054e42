package guardasynq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A delivery is one task that asynq has given to a worker.
type delivery struct {
	m    *middleware
	ctx  context.Context
	task *asynq.Task
	next asynq.Handler

	fromServer bool // an asynq server has delivered it, so that the fields below are set
	id, queue  string
	attempts   int           // how many are left after this one
	intervals  time.Duration // of asynq's polling; 0 without Configure

	key      string         // the key that the KeyFunc returned
	identity string         // the key of the lease under which the handler runs
	onceKey  string         // the key of the lease that leaves the done marker, or ""
	lease    []guard.Option // of WithTaskLease
	bound    *bound

	started bool      // the handler was called
	err     error     // what it returned
	freed   time.Time // when the key was free for the next task, or zero
	outcome guard.Outcome
}

func (m *middleware) deliver(ctx context.Context, task *asynq.Task, next asynq.Handler) *delivery {
	d := &delivery{m: m, ctx: ctx, task: task, next: next}
	d.id, d.fromServer = asynq.GetTaskID(ctx)
	d.queue, _ = asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	d.attempts = max(0, maxRetry-retried)
	d.intervals, _ = ctx.Value(intervalsKey{}).(time.Duration)
	d.outcome = guard.Outcome{Adapter: "asynq", Name: m.name, Start: time.Now()}
	if m.name == "" {
		d.outcome.Name = typeName(task.Type())
	}
	return d
}

// process runs the handler, or ensures that it will be run. It returns the error for asynq.
func (d *delivery) process() error {
	defer d.report()
	if err := d.identify(); err != nil {
		d.end(resultRefused, err)
		return err
	}
	if d.identity == "" {
		d.end(resultUnguarded, nil)
		d.err = d.handle(d.ctx)
		d.outcome.Err = d.err
		return d.err
	}
	defer d.wakeNext()
	d.m.backlog.arrive(d.identity, d.id)
	if d.isRepeated() {
		d.end(resultCoalesced, nil)
		d.freed = time.Now()
		return nil
	}
	for {
		err := d.acquire(d.wait())
		if d.isBusy(err) && d.m.busy == Requeue && d.fromServer && !d.needsCopy() {
			d.enqueue(d.id)
			err = d.acquire(0) // a run that ended meanwhile has not found it there
		}
		answer, final := d.answer(err)
		if final {
			return answer
		}
		select { // asynq's Redis is unavailable, and asynq itself would lose the task
		case <-time.After(answerPause):
		case <-d.ctx.Done():
			d.end(resultCanceled, answer)
			return answer
		}
	}
}

// answerPause is between two tries to run a task, or to enqueue it again, if neither can be done.
const answerPause = time.Second

// identify calls the KeyFuncs, and the function of WithTaskLease.
func (d *delivery) identify() (err error) {
	d.end(resultRefused, nil) // if a function panics
	if d.key, d.identity, err = d.find(d.m.key, ""); err != nil {
		return fmt.Errorf("guardasynq: key of task %q: %w", d.task.Type(), err)
	}
	if d.m.once > 0 || d.m.key == nil {
		key, onceKey, err := d.find(d.m.onceBy, "once ")
		if err != nil {
			return fmt.Errorf("guardasynq: key of task %q: %w", d.task.Type(), err)
		}
		if d.onceKey = onceKey; d.identity == "" { // one lease does for both
			d.key, d.identity = key, onceKey
		}
	}
	if d.identity == "" || d.m.perTask == nil {
		return nil
	}
	d.lease = d.m.perTask(d.ctx, d.task)
	a := d.m.guard.Adapter()
	if err := a.CheckOptions(d.m.refusedOfTask(), d.lease...); err != nil {
		return fmt.Errorf("guardasynq: lease of task %q: %w", d.task.Type(), err)
	}
	if name := a.Name(append(slices.Clip(d.m.opts), d.lease...)...); name != "" {
		d.outcome.Name = name
	}
	return nil
}

// find returns the key of a KeyFunc and the one under which the store knows it. Both are empty if
// the function is nil or returns ErrUnguarded.
func (d *delivery) find(f KeyFunc, use string) (key, identity string, err error) {
	if f == nil {
		return "", "", nil
	}
	key, err = f(d.ctx, d.task)
	if errors.Is(err, ErrUnguarded) {
		return "", "", nil
	}
	if err == nil {
		key, err = found(d.task, key, "the key")
	}
	return key, d.m.identity(d.task, use, key), err
}

// wait returns how long the task may wait in its worker.
func (d *delivery) wait() time.Duration {
	if deadline, ok := d.ctx.Deadline(); ok {
		return min(d.m.wait, time.Until(deadline)-time.Second)
	}
	return d.m.wait
}

// acquire runs the handler under its lease, or under its two leases, if it gets them within wait.
// It returns in time for asynq to learn of the end before the task's deadline, unless the handler
// does not return. If the handler has run already, acquire only returns its error.
func (d *delivery) acquire(wait time.Duration) error {
	if d.started {
		return d.err
	}
	ctx, bound := newBound(d.ctx)
	d.bound = bound
	defer bound.end()
	until := time.Now().Add(wait)
	once := append(d.options(wait), guard.WithOnce(d.m.once), guard.WithLimit(0))
	var err error
	switch d.onceKey {
	case "":
		err = d.m.guard.Do(ctx, d.identity, func(ctx context.Context) error { return d.run(ctx, nil) }, d.options(wait)...)
	case d.identity:
		err = d.m.guard.Do(ctx, d.identity, func(ctx context.Context) error {
			marker, _ := guard.FromContext(ctx)
			return d.run(ctx, marker)
		}, once...)
	default:
		err = d.m.guard.Do(ctx, d.onceKey, func(ctx context.Context) error {
			marker, _ := guard.FromContext(ctx)
			// the rest of the wait, which is for both leases
			return d.m.guard.Do(ctx, d.identity, func(ctx context.Context) error { return d.run(ctx, marker) }, d.options(time.Until(until))...)
		}, append(once, d.m.guard.Adapter().Auxiliary())...)
	}
	if !d.started && errors.Is(err, errNoTime) {
		return &guard.StoreError{Op: driver.OpAcquire, Key: d.identity, Kind: driver.KindTimeout, Err: errNoTime}
	}
	return err
}

// options returns the options of a lease of the task.
func (d *delivery) options(wait time.Duration) []guard.Option {
	opts := append(slices.Clip(d.m.opts), guard.WithName(d.outcome.Name))
	if wait > 0 {
		opts = append(opts, guard.WithWait(wait))
	}
	return append(opts, d.lease...)
}

// run calls the handler under the lease of ctx. If it succeeds, its result becomes the record of
// the marker. run returns nil without a call if the run of a newer task replaces this one.
func (d *delivery) run(ctx context.Context, marker *guard.Lease) error {
	if !d.bound.pause() {
		return errNoTime
	}
	defer d.bound.resume()
	defer func() { d.freed = time.Now() }()
	d.m.backlog.arrive(d.identity, d.id)
	if d.m.busy == Coalesce && d.replaceOlder() {
		return nil
	}
	d.end(resultRan, nil)
	d.outcome.Fence, d.outcome.Skipped, d.outcome.Label = guard.Fence(ctx), "", ""
	d.err = d.handle(ctx)
	if d.err == nil && marker != nil {
		d.keepResult(marker)
	}
	return d.err
}

// handle calls the handler.
func (d *delivery) handle(ctx context.Context) error {
	d.started, d.outcome.Aborted = true, true
	err := d.next.ProcessTask(context.WithValue(ctx, runKey{}, d), d.task)
	d.outcome.Aborted = false
	return err
}

func (d *delivery) isBusy(err error) bool { return !d.started && errors.Is(err, guard.ErrBusy) }

func (d *delivery) end(r result, err error) { d.outcome.Result, d.outcome.Err = string(r), err }

// report is called when the delivery has an answer for asynq, or when a function has panicked.
func (d *delivery) report() {
	d.outcome.Duration = time.Since(d.outcome.Start)
	d.m.guard.Adapter().Report(d.ctx, d.outcome, append(slices.Clip(d.m.lease), d.lease...)...)
}

type runKey struct{}

// Key returns the key of the task under which a handler runs, as the KeyFunc returned it, or "" if
// ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if d, ok := ctx.Value(runKey{}).(*delivery); ok {
		return d.key
	}
	return ""
}
