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

// An Outcome is the part of an adapter's Outcome that does not depend on the transport.
type Outcome struct {
	Result  idempotency.Result
	Kept    idempotency.Keep
	Origin  string
	Fence   uint64
	Aborted bool
	Err     error
}

// An Origin returns by what a run is to be known, see Observer.Origin of the adapters.
type Origin func(ctx context.Context) string

// origin returns the first origin that is not empty. ctx is the handler's.
func (c *Core) origin(ctx context.Context) (origin string) {
	for _, o := range c.Origins {
		if o != nil && origin == "" {
			Contain(func() { origin = o(ctx) })
		}
	}
	return origin[:min(len(origin), MaxOrigin)]
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
		Aborted: c.Aborted, Err: c.Err, Refused: refused, Skipped: c.skip, Label: c.holder,
	}, c.Core.Lease...)
}
