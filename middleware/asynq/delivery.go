package guardasynq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
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

	claim.Attempt
	bound   *bound
	verdict claim.Verdict
	freed   time.Time // when the key was free for the next task, or zero
}

func (m *middleware) newDelivery(ctx context.Context, task *asynq.Task, next asynq.Handler) *delivery {
	d := &delivery{m: m, ctx: ctx, task: task, next: next, Attempt: m.core.Begin(ctx, task.Type())}
	d.id, d.fromServer = asynq.GetTaskID(ctx)
	d.queue, _ = asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	d.attempts = max(0, maxRetry-retried)
	d.intervals, _ = ctx.Value(intervalsKey{}).(time.Duration)
	return d
}

// process runs the handler, or ensures that it will be run. It returns the error for asynq.
func (d *delivery) process() error {
	defer d.Report()
	if err := d.identify(); err != nil {
		return d.Refuse(err)
	}
	if d.Identity == "" {
		return d.Unguarded(func() error { return d.handle(d.ctx) })
	}
	defer d.wakeNext()
	d.m.backlog.arrive(d.Identity, d.id)
	if d.isRepeated() {
		d.End(resultCoalesced, nil)
		d.freed = time.Now()
		return nil
	}
	for {
		v := d.acquire(d.wait())
		if v.Result == claim.Busy && d.m.busy == Requeue && d.fromServer && !d.needsCopy() {
			d.enqueue(d.id)
			v = d.acquire(0) // a run that ended meanwhile has not found it there
		}
		answer, final := d.answer(v)
		if final {
			return answer
		}
		select { // asynq's Redis is unavailable, and asynq itself would lose the task
		case <-time.After(answerPause):
		case <-d.ctx.Done():
			d.End(claim.Canceled, answer)
			return answer
		}
	}
}

// answerPause is between two tries to run a task, or to enqueue it again, if neither can be done.
const answerPause = time.Second

// identify calls the KeyFuncs, and the function of WithTaskLease.
func (d *delivery) identify() error {
	s := claim.Source{Kind: d.task.Type(), Of: d.String, Key: d.m.key.source(d.ctx, d.task), Once: d.m.onceBy.source(d.ctx, d.task)}
	if d.m.perTask != nil {
		s.Lease = func() []guard.Option { return d.m.perTask(d.ctx, d.task) }
	}
	return d.Identify(s)
}

// String names the task in errors.
func (d *delivery) String() string { return fmt.Sprintf("task %q", d.task.Type()) }

// wait returns how long the task may wait in its worker.
func (d *delivery) wait() time.Duration {
	if deadline, ok := d.ctx.Deadline(); ok {
		return min(d.m.Wait, time.Until(deadline)-time.Second)
	}
	return d.m.Wait
}

// acquire runs the handler under its lease, or under its two leases, if it gets them within wait.
// It returns in time for asynq to learn of the end before the task's deadline, unless the handler
// does not return. If the handler has run already, acquire only returns how.
func (d *delivery) acquire(wait time.Duration) claim.Verdict {
	if d.Started {
		return d.verdict
	}
	ctx, bound := newBound(d.ctx)
	d.bound = bound
	defer bound.end()
	v := d.Do(ctx, wait, d.run)
	if !d.Started && d.ctx.Err() == nil && errors.Is(v.Err, errNoTime) {
		v = claim.Verdict{Result: claim.Unavailable, Err: &guard.StoreError{Op: driver.OpAcquire, Key: d.Identity, Kind: driver.KindTimeout, Err: errNoTime}}
	}
	d.verdict = v
	return v
}

// run calls the handler under the lease of ctx. If it succeeds, its result becomes the record of
// the marker. run returns nil without a call if the run of a newer task replaces this one.
func (d *delivery) run(ctx context.Context, marker *guard.Lease) error {
	if !d.bound.pause() {
		return errNoTime
	}
	defer d.bound.resume()
	defer func() { d.freed = time.Now() }()
	d.m.backlog.arrive(d.Identity, d.id)
	if d.m.busy == Coalesce && d.replaceOlder() {
		return nil
	}
	err := d.Call(func() error { return d.handle(ctx) })
	if err == nil && marker != nil {
		d.keepResult(marker)
	}
	return err
}

// handle calls the handler.
func (d *delivery) handle(ctx context.Context) error {
	return d.next.ProcessTask(context.WithValue(ctx, runKey{}, d), d.task)
}

type runKey struct{}

// Key returns the key of the task under which a handler runs, as the KeyFunc returned it, or "" if
// ctx is not that of a handler behind the middleware. The lease and its fence are in
// guard.FromContext and guard.Fence.
func Key(ctx context.Context) string {
	if d, ok := ctx.Value(runKey{}).(*delivery); ok {
		return d.Key
	}
	return ""
}
