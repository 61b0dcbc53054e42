package idempotent

import (
	"context"
	"sync/atomic"
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

// An Outcome is the part of an adapter's Outcome that does not depend on the transport.
type Outcome struct {
	Result  idempotency.Result
	Kept    idempotency.Keep
	Label   string // of the run that has left the record, or of the holder of the key
	Fence   uint64
	Aborted bool
	Err     error
}

// Contain calls f and ignores its panic: observers report and decide nothing.
func Contain(f func()) {
	defer func() { _ = recover() }()
	f()
}

// Report notifies the hooks of the call's end. refused is why the call was refused, if that is the
// server's mistake.
func (c *Call) Report(ctx context.Context, start time.Time, took time.Duration, refused error) {
	c.Core.guard.Adapter().Report(ctx, guard.Outcome{
		Adapter: c.Core.Adapter.String(), Result: string(c.Result), Name: c.Name(), Start: start, Duration: took, Fence: c.Fence,
		Aborted: c.Aborted, Err: c.Err, Refused: refused, Skipped: c.skip, Label: c.Label,
	}, c.Core.Lease...)
}

// NotRun returns err such that guard.Ran is false for it: the handler does not run. It returns nil
// for nil.
func NotRun(err error) error { return says(false, err) }

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

// A Place holds the Outcome of an adapter for code in front of its middleware, which may read it
// while the call still runs.
type Place[O any] struct{ outcome atomic.Pointer[O] }

// Set sets the Outcome.
func (p *Place[O]) Set(o O) { p.outcome.Store(&o) }

// Get returns the Outcome, or the zero one if none was set.
func (p *Place[O]) Get() (o O) {
	if set := p.outcome.Load(); set != nil {
		o = *set
	}
	return o
}
