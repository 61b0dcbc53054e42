package guardasynq

import (
	"context"
	"errors"
	"time"
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

// mostSpare is how long before the deadline a bound ends its context, or half of what is left.
const mostSpare = 500 * time.Millisecond

// newBound returns a context for requests. The bound is nil if ctx has no deadline.
func newBound(ctx context.Context) (context.Context, *bound) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b := &bound{cancel: cancel, deadline: deadline}
	b.timer = time.AfterFunc(b.left(), func() { cancel(errNoTime) })
	return ctx, b
}

// left returns for how long requests may still take.
func (b *bound) left() time.Duration { return beforeEnd(b.deadline) }

// beforeEnd returns how long it is until asynq must learn of the end of a task with that deadline.
func beforeEnd(deadline time.Time) time.Duration {
	left := time.Until(deadline)
	return left - min(mostSpare, left/2)
}

// pause stops the clock, and reports whether the context has not ended.
func (b *bound) pause() bool { return b == nil || b.timer.Stop() }

// resume starts the clock again, for the release.
func (b *bound) resume() {
	if b != nil {
		b.timer.Reset(b.left())
	}
}

// end frees what the bound has.
func (b *bound) end() {
	if b != nil {
		b.timer.Stop()
		b.cancel(nil)
	}
}
