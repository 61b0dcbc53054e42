package guardhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A Result is the final result of a request. The results are few and fixed, so they can be a label
// of a metric.
type Result string

// The results. In shadow mode, a Result is what would have happened without it.
const (
	// ResultUntouched means that the request was passed on: it has another method, or no key though
	// keys are optional, or the KeyFunc returned ErrUnguarded, or it has no route in the
	// http.ServeMux that the middleware wraps.
	ResultUntouched Result = "untouched"
	// ResultRan means that the handler ran under a lease.
	ResultRan Result = "ran"
	// ResultReplayed means that the client got the first answer again.
	ResultReplayed Result = "replayed"
	// ResultInFlight means 409: the first request still runs.
	ResultInFlight Result = "in_flight"
	// ResultDone means 409: there was a first request (Reject).
	ResultDone Result = "done"
	// ResultNotReplayable means 409: the answer of the first request was not kept, or cannot be
	// read.
	ResultNotReplayable Result = "not_replayable"
	// ResultMismatch means 422: the first request with the key was a different one.
	ResultMismatch Result = "mismatch"
	// ResultKeyMissing means 400: the request has no key.
	ResultKeyMissing Result = "key_missing"
	// ResultKeyInvalid means 400: the key cannot be used.
	ResultKeyInvalid Result = "key_invalid"
	// ResultBodyInvalid means 400: the body broke off, or WithFingerprint refused it.
	ResultBodyInvalid Result = "body_invalid"
	// ResultBodyTooLarge means 413: the body is longer than WithMaxBody allows.
	ResultBodyTooLarge Result = "body_too_large"
	// ResultRefused means 500: the scope or the key could not be determined. It is also the result
	// if the function that determines them, or the fingerprint, panicked.
	ResultRefused Result = "refused"
	// ResultUnavailable means 503: the store could not be asked.
	ResultUnavailable Result = "unavailable"
	// ResultDegraded means that the handler ran without a lease, because the store could not be
	// asked (WithFailOpen).
	ResultDegraded Result = "degraded"
	// ResultCanceled means 503: the client left, or its time was up, before the handler began.
	ResultCanceled Result = "canceled"
	// ResultTooManyKeys means 429: the scope has as many records as WithMaxScopeRecords allows.
	ResultTooManyKeys Result = "too_many_keys"
)

// An Outcome is a Result with its details. It contains no key.
type Outcome struct {
	Result Result
	// Name is the kind of work: that of WithName, or the Guard's, or "http".
	Name string
	// Shadow says that the handler ran whatever Result is (WithShadow).
	Shadow bool
	// Status is that of the answer. It is 0 if the request was passed on untouched, the connection
	// was taken over, or the handler did not return.
	Status int
	// Kept is what the run has left in the store.
	Kept Keep
	// Origin is the Observer.Origin of the first run, in a replay, a mismatch, and any other
	// request that has found its record.
	Origin string
	// Fence is the lease's, if the handler ran under one.
	Fence uint64
	// Aborted says that the handler, or a function of yours, panicked or ended its goroutine.
	Aborted bool
	// Duration is how long the request took.
	Duration time.Duration
	// Err is the reason, if there is more to say. It is guard.ErrLost for a run whose lease was
	// lost, guard.ErrStore, a *RecordError, a *KeyError, or the error of a function of yours.
	// guard.Ran says of it whether the handler ran. It may contain what a client must not see.
	Err error
}

// An Observer receives the outcome of each request, for traces, metrics and logs.
type Observer struct {
	// Origin returns the text that identifies a first run to requests that find its record, such
	// as its traceparent. It has at most 256 bytes, and the rest is cut off. ctx is the handler's.
	// It may be nil.
	Origin func(ctx context.Context) string
	// End is called once for each request, before the middleware returns, even if the handler
	// panicked. ctx is the request's. It may be nil.
	End func(ctx context.Context, o Outcome)
}

type trackKey struct{}

// Track returns the request, and a function that returns its Outcome once the middleware has
// returned. It is for code in front of the middleware, such as a log:
//
//	r, outcome := guardhttp.Track(r)
//	next.ServeHTTP(w, r)
//	log.Print(r.URL.Path, outcome().Result)
//
// Result is empty if the request did not get to a middleware, or is still there: an
// http.TimeoutHandler answers before. The function is safe for concurrent use.
func Track(r *http.Request) (*http.Request, func() Outcome) {
	p := new(idempotent.Place[Outcome])
	return r.WithContext(context.WithValue(r.Context(), trackKey{}, p)), p.Get
}
