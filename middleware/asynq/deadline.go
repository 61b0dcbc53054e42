package guardasynq

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

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

// returnSlack is for all that has to happen between the return of a task and its deadline, beside
// asynq's intervals.
const returnSlack = time.Second

// delay returns for how long to postpone a task that did not run because of err, and whether its
// Deadline has shortened that.
func (d *delivery) delay(err error) (after time.Duration, shortened bool) {
	return d.beforeDeadline(d.m.core.Postpone(claim.Until(err)))
}

// beforeDeadline returns the delay, or a shorter one after which asynq still gives the task to a
// worker in time: it counts a failure, or archives the task, at its Deadline. It returns 0 if there
// is no such delay.
func (d *delivery) beforeDeadline(after time.Duration) (_ time.Duration, shortened bool) {
	ends, ok := d.ctx.Deadline() // of this delivery: not after the task's own Deadline
	spare := returnSlack + d.intervals
	if d.intervals == 0 {
		spare += asynqIntervals
	}
	if !ok || !d.fromServer || time.Until(ends)-spare >= after {
		return after, false
	}
	if info, err := d.m.inspector.GetTaskInfo(d.queue, d.id); err == nil {
		if ends = info.Deadline; ends.IsZero() {
			return after, false // a Timeout counts anew for each delivery
		}
	}
	latest := max(0, time.Until(ends)-spare)
	return min(after, latest), latest < after
}
