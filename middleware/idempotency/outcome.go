package idempotency

import "time"

// An Outcome is a Result with its details. It contains no key. guardhttp.Outcome and
// guardgrpc.Outcome add what only their protocol has.
type Outcome struct {
	Result Result
	// Name is the kind of work: that of guard.WithName, or the pattern of http.ServeMux or the full
	// gRPC method, or "http".
	Name string
	// Shadow says that the handler ran whatever Result is (WithShadow).
	Shadow bool
	// Kept is what the run has left in the store.
	Kept Keep
	// Label identifies the run whose record the call has found, or the run that holds its key: see
	// guard.WithLabel, and guard.Hook.Label for the trace of a run. It comes from the store.
	Label string
	// Fence is the lease's, if the handler ran under one.
	Fence uint64
	// Aborted says that the handler, or a function of yours, panicked or ended its goroutine.
	Aborted bool
	// Duration is how long the call took.
	Duration time.Duration
	// Err is the reason, if there is more to say. It is guard.ErrLost for a run whose lease was
	// lost, guard.ErrStore, a *RecordError or KeyError, or the error of a function of yours.
	// guard.Ran says of it whether the handler ran. It may contain what a client must not see.
	Err error
}
