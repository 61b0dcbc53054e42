package idempotent

import "context"

// runContext returns the context of a handler: the lease's, with the run in it. It ends after
// WithMaxHold, and with WithClientCancel also at the end of the call, whose context call is.
func (c *Call) runContext(leased, call context.Context) (ctx context.Context, end context.CancelFunc) {
	ctx = context.WithValue(leased, runKey(c.Core.Adapter), &c.Run)
	ctx, stop := context.WithTimeout(ctx, c.Core.MaxHold)
	if !c.Core.ClientCancel {
		return ctx, stop
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unset := context.AfterFunc(call, func() { cancel(context.Cause(call)) })
	return ctx, func() { unset(); stop() }
}
