package guardhttp

import (
	"context"
	"net/http"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An Outcome is how a request ended.
type Outcome struct {
	idempotency.Outcome

	// Status is that of the answer. It is 0 if the request was passed on untouched, the connection
	// was taken over, or the handler did not return.
	Status int
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
