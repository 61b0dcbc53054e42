package guardhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An Outcome is a Result with its details. It contains no key.
type Outcome struct {
	Result idempotency.Result
	// Name is the kind of work: that of guard.WithName, or the pattern of http.ServeMux, or "http".
	Name string
	// Shadow says that the handler ran whatever Result is (WithShadow).
	Shadow bool
	// Status is that of the answer. It is 0 if the request was passed on untouched, the connection
	// was taken over, or the handler did not return.
	Status int
	// Kept is what the run has left in the store.
	Kept idempotency.Keep
	// Label identifies the run whose record the request has found, or the run that holds its key:
	// see guard.WithLabel, and guard.Hook.Label for the trace of a run. It comes from the store.
	Label string
	// Fence is the lease's, if the handler ran under one.
	Fence uint64
	// Aborted says that the handler, or a function of yours, panicked or ended its goroutine.
	Aborted bool
	// Duration is how long the request took.
	Duration time.Duration
	// Err is the reason, if there is more to say. It is guard.ErrLost for a run whose lease was
	// lost, guard.ErrStore, an *idempotency.RecordError or
	// KeyError, or the error of a function of yours.
	// guard.Ran says of it whether the handler ran. It may contain what a client must not see.
	Err error
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
