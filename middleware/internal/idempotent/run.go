package idempotent

import (
	"context"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// runContext returns the context of a handler: the lease's, with the run in it. It ends after
// WithMaxHold, and with WithClientCancel also at the end of the call, whose context call is.
func (c *Call) runContext(leased, call context.Context) (ctx context.Context, end context.CancelFunc) {
	ctx = c.Run.Begin(leased, c.RunKey)
	ctx, stop := context.WithTimeout(ctx, c.Core.MaxHold)
	if !c.Core.ClientCancel {
		return ctx, stop
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unset := context.AfterFunc(call, func() { cancel(context.Cause(call)) })
	return ctx, func() { unset(); stop() }
}

// An Ending is how a handler has ended.
type Ending struct {
	Gone       bool // the client did not get all of the answer
	Unsure     bool // the handler may still run, so a retry must not run beside it
	Undecided  bool // other code may answer after the handler, which has not
	Replayable bool // the answer can be given again
}

// Keep returns what to keep of a run. final reports whether the answer is final by the policy. It
// is not called if the handler has chosen what to keep. ctx is the context of the call.
func (c *Call) Keep(ctx context.Context, e Ending, final func() bool) idempotency.Keep {
	s := c.Core.Settings
	switch {
	case s.Mode == idempotency.Exclusive:
		return idempotency.KeepNothing
	case (s.ClientCancel || s.Shadow) && (e.Gone || ctx.Err() != nil):
		return idempotency.KeepNothing
	case s.Shadow && e.Undecided:
		return idempotency.KeepNothing // shadow mode must not prevent the other answer
	case e.Unsure:
		return idempotency.KeepTombstone // whatever the policy says
	}
	keep, chosen := c.Run.Chosen()
	if !chosen {
		keep = idempotency.KeepAnswer
		if !final() {
			return idempotency.KeepNothing
		}
	}
	switch {
	case keep != idempotency.KeepAnswer:
		return keep
	case s.Mode == idempotency.Reject:
		return idempotency.KeepTombstone
	case !e.Replayable && s.Rerun:
		return idempotency.KeepNothing
	case !e.Replayable:
		return idempotency.KeepTombstone
	}
	return idempotency.KeepAnswer
}
