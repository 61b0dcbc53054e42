package idempotency

import (
	"time"
)

// An Outcome is how a call ended. It contains no key.
type Outcome struct {
	Result Result
	// Name is the kind of work: that of guard.WithName, or Route, or "http".
	Name string
	// Route is the pattern of http.ServeMux that has matched the request, or the full name of the
	// gRPC method: "/package.Service/Method". It is empty if it is not known.
	Route string
	// Status is that of the answer: the status of HTTP, or the code of gRPC. In HTTP, it is 0 if
	// the request was passed on untouched, the connection was taken over, or the handler did not
	// return. In gRPC, it is UNKNOWN if the handler did not return.
	Status int
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

// A Result is the final result of a call. The results are few and fixed, so they can be a label of
// a metric.
type Result string

// The results. In shadow mode, a Result is what would have happened without it.
const (
	// Untouched means that the call was passed on: it has no key and needs none, its method is not
	// guarded, or the KeyFunc returned ErrUnguarded. In HTTP, it also means that the http.ServeMux
	// behind the middleware has no route for the request.
	Untouched Result = "untouched"
	// Ran means that the handler ran under a lease.
	Ran Result = "ran"
	// Replayed means that the client got the first answer again.
	Replayed Result = "replayed"
	// InFlight means 409, ABORTED: the first call still runs.
	InFlight Result = "in_flight"
	// Done means 409, ALREADY_EXISTS: there was a first call (Reject).
	Done Result = "done"
	// NotReplayable means 409, ALREADY_EXISTS: the first answer was not kept, or cannot be read.
	NotReplayable Result = "not_replayable"
	// Mismatch means 422, INVALID_ARGUMENT: the first call with the key was a different one.
	Mismatch Result = "mismatch"
	// KeyMissing means 400, INVALID_ARGUMENT: the call has no key.
	KeyMissing Result = "key_missing"
	// KeyInvalid means 400, INVALID_ARGUMENT: the key cannot be used.
	KeyInvalid Result = "key_invalid"
	// BodyInvalid means 400, INVALID_ARGUMENT: the body broke off, or WithFingerprint refused the
	// request.
	BodyInvalid Result = "body_invalid"
	// BodyTooLarge means 413: the body is longer than guardhttp.WithMaxBody allows.
	BodyTooLarge Result = "body_too_large"
	// Refused means 500, INTERNAL: the scope or the key could not be determined. It is also the
	// result if the function that determines them, or the fingerprint, panicked.
	Refused Result = "refused"
	// Unavailable means 503, UNAVAILABLE: the store is not available.
	Unavailable Result = "unavailable"
	// Degraded means that the handler ran without a lease, because the store was not available
	// (WithFailOpen).
	Degraded Result = "degraded"
	// Canceled means 503, and CANCELLED or DEADLINE_EXCEEDED: the client left, or its time was up,
	// before the handler began.
	Canceled Result = "canceled"
	// TooManyKeys means 429, RESOURCE_EXHAUSTED: the scope has as many records as
	// WithMaxScopeRecords allows.
	TooManyKeys Result = "too_many_keys"
)
