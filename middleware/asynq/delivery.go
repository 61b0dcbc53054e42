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

func (m *middleware) wrap(next asynq.Handler) asynq.Handler {
	if next == nil {
		panic("guardasynq: the handler must not be nil")
	}
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return m.newDelivery(ctx, task, next).process()
	})
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

// resultCoalesced is the result of a task that another run covers.
const resultCoalesced claim.Result = "coalesced"

// answer decides what happens to the task after acquire. It returns the error for asynq, and
// whether it is final. If it is not, the task stays with its worker, which tries again.
func (d *delivery) answer(v claim.Verdict) (answer error, final bool) {
	if d.Started {
		return d.answerRan(v.Err)
	}
	switch {
	case v.Result == claim.Ran && v.Err == nil: // the run of a newer task replaces this one
		d.End(resultCoalesced, nil)
		return nil, true
	case v.Result == claim.Done:
		return d.giveResult(v.Record)
	case d.ctx.Err() != nil:
		d.End(claim.Canceled, v.Err)
		return v.Err, true
	case v.Result == claim.Busy:
		return d.answerBusy(v)
	case v.Result == claim.Refused:
		return d.Refuse(fmt.Errorf("guardasynq: lease of %v: %w", d, v.Err)), true
	default:
		return d.postpone(claim.Unavailable, v.Err)
	}
}

// answerRan is answer for a task whose handler has run.
func (d *delivery) answerRan(err error) (answer error, final bool) {
	var snooze *PostponedError
	switch {
	case errors.As(d.Err, &snooze) && snooze.snoozed && !snooze.final:
		return d.snooze(snooze)
	case d.Err == nil: // the Outcome has that the lease was lost
		return nil, true
	case claim.IsCutOff(d.ctx, err, d.Err):
		return d.postpone(claim.Unavailable, err)
	default:
		return err, true
	}
}

// answerBusy decides what happens to a task whose key is busy.
func (d *delivery) answerBusy(v claim.Verdict) (answer error, final bool) {
	// If the repeat runs after all, it does so under another key.
	undecided := v.OfRepeat && !errors.Is(d.m.core.Look(d.ctx, d.Identity), guard.ErrBusy)
	switch {
	case d.m.busy == Coalesce:
		return d.coalesce(v.Err)
	case d.m.busy == Skip && !undecided:
		d.End(claim.Skipped, v.Err)
		return nil, true
	case d.m.busy == Fail && !undecided:
		return fmt.Errorf("guardasynq: %v: %w", d, v.Err), true
	default:
		return d.postpone(claim.Postponed, v.Err)
	}
}

// keepResult makes what the handler has written to its ResultWriter the record of the done marker.
func (d *delivery) keepResult(marker *guard.Lease) {
	if !d.fromServer {
		return
	}
	info, err := d.m.inspector.GetTaskInfo(d.queue, d.id)
	if err == nil && len(info.Result) > 0 {
		err = marker.SetRecord(info.Result)
	}
	if err != nil {
		d.Outcome.Refused = fmt.Errorf("guardasynq: task %q: the result cannot be kept for repeats: %w", d.id, err)
	}
}

// giveResult ends a task whose work is done, with the result of the run that has done it.
func (d *delivery) giveResult(result []byte) (answer error, final bool) {
	// the writer is nil if an outer handler has replaced the task
	if len(result) > 0 && d.fromServer && d.task.ResultWriter() != nil {
		if _, err := d.task.ResultWriter().Write(result); err != nil {
			d.Outcome.Skipped = ""
			return d.postpone(claim.Unavailable, fmt.Errorf("guardasynq: write the result of task %q, which was done before: %w", d.id, err))
		}
	}
	d.freed = time.Now()
	return nil, true
}

// A bound ends the requests to the guard's store before the task's deadline. At the deadline,
// asynq counts a failure or archives the task, whatever the middleware returns after that. The
// bound leaves enough time to postpone a task that did not run, and to report one that did. It is
// paused while the handler runs.
type bound struct {
	cancel   context.CancelCauseFunc
	deadline time.Time
	timer    *time.Timer
}

// errNoTime is the cause with which a bound ends its context.
var errNoTime = errors.New("no answer before the deadline of the task")

// maxSpare is how long before the deadline a bound ends its context, or half of what is left.
const maxSpare = 500 * time.Millisecond

// newBound returns a context for requests. The bound is nil if ctx has no deadline.
func newBound(ctx context.Context) (context.Context, *bound) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b := &bound{cancel: cancel, deadline: deadline}
	b.timer = time.AfterFunc(beforeEnd(deadline), func() { cancel(errNoTime) })
	return ctx, b
}

// beforeEnd returns how long it is until asynq must learn of the end of a task with that deadline.
func beforeEnd(deadline time.Time) time.Duration {
	left := time.Until(deadline)
	return left - min(maxSpare, left/2)
}

// pause stops the clock, and reports whether the context has not ended.
func (b *bound) pause() bool { return b == nil || b.timer.Stop() }

// resume starts the clock again, for the release.
func (b *bound) resume() {
	if b != nil {
		b.timer.Reset(beforeEnd(b.deadline))
	}
}

// end frees what the bound has.
func (b *bound) end() {
	if b != nil {
		b.timer.Stop()
		b.cancel(nil)
	}
}
