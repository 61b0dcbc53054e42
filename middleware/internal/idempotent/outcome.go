package idempotent

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Codes of refusals that are no final results.
const (
	// GivenUp means that the handler's context has ended, and the handler has not answered.
	GivenUp idempotency.Result = "given_up"
	// NotRecorded means that the handler has run, and its answer may not be in the store.
	NotRecorded idempotency.Result = "unrecorded"
)

// Report completes the Outcome of the call that has ended, and notifies hooks and observers.
// misplaced is why the answer is not that of the handler, if that is the server's mistake.
func (c *Call) Report(ctx context.Context, start time.Time, misplaced error) {
	o := &c.Outcome
	o.Name, o.Shadow, o.Duration = c.name(), c.Core.Shadow, time.Since(start)
	refused := misplaced
	if o.Result == idempotency.Refused {
		refused = o.Err
	}
	c.Core.guard.Adapter().Report(ctx, guard.Outcome{
		Adapter: c.Core.Adapter.String(), Result: string(o.Result), Name: o.Name, Start: start, Duration: o.Duration, Fence: o.Fence,
		Aborted: o.Aborted, Err: o.Err, Refused: refused, Skipped: c.skip, Label: o.Label,
	}, c.Core.Lease...)
	c.Core.Observe(ctx, *o)
}

// says returns err such that guard.Ran says of it whether the handler ran, or is to run.
func says(ran bool, err error) error {
	if err == nil || guard.Ran(err) == ran {
		return err
	}
	return &outcomeError{err, ran}
}

// An outcomeError is an error of a call whose handler did, or did not, run whatever the error
// itself says. A function of the user's, for example, knows nothing of the handler.
type outcomeError struct {
	err error
	ran bool
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }
func (e *outcomeError) Ran() bool     { return e.ran }
