package idempotent

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A Result is the final result of a call.
type Result string

// The results. The adapters document them.
const (
	Untouched     Result = "untouched"
	Ran           Result = "ran"
	Replayed      Result = "replayed"
	InFlight      Result = "in_flight"
	Done          Result = "done"
	NotReplayable Result = "not_replayable"
	Mismatch      Result = "mismatch"
	KeyMissing    Result = "key_missing"
	KeyInvalid    Result = "key_invalid"
	BodyInvalid   Result = "body_invalid"
	BodyTooLarge  Result = "body_too_large"
	Refused       Result = "refused"
	Unavailable   Result = "unavailable"
	Degraded      Result = "degraded"
	Canceled      Result = "canceled"
	TooManyKeys   Result = "too_many_keys"

	// GivenUp is no final result, but the code of a refusal: the handler's context has ended, and
	// the handler has not answered.
	GivenUp Result = "given_up"
	// NotRecorded is none either: the handler has run, and its answer may not be in the store.
	NotRecorded Result = "unrecorded"
)

// An Outcome is the part of an adapter's Outcome that does not depend on the transport.
type Outcome struct {
	Result  Result
	Kept    Keep
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
		Adapter: c.Core.Adapter.String(), Result: string(c.Result), Name: c.Core.Name, Start: start, Duration: took, Fence: c.Fence,
		Aborted: c.Aborted, Err: c.Err, Refused: refused, Skipped: c.skip, Label: c.holder,
	}, c.Core.Lease...)
}
