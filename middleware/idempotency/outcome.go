package idempotency

import (
	"context"
	"sync/atomic"
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

type trackKey struct{}

// Track returns a context for a call, and a function that returns the call's Outcome once guardhttp
// or guardgrpc has returned. It is for code in front of them, such as a log:
//
//	ctx, outcome := idempotency.Track(r.Context())
//	next.ServeHTTP(w, r.WithContext(ctx))
//	log.Print(r.URL.Path, outcome().Result)
//
// Result is empty if the call did not get to a middleware, or is still there: an
// http.TimeoutHandler answers before. The function is safe for concurrent use.
func Track(ctx context.Context) (context.Context, func() Outcome) {
	p := new(atomic.Pointer[Outcome])
	return context.WithValue(ctx, trackKey{}, p), func() (o Outcome) {
		if set := p.Load(); set != nil {
			o = *set
		}
		return o
	}
}

// Observe notifies the code in front of an adapter, and observers, of the end of a call.
func (s *Settings) Observe(ctx context.Context, o Outcome) {
	if tracked, ok := ctx.Value(trackKey{}).(*atomic.Pointer[Outcome]); ok {
		tracked.Store(&o)
	}
	for _, observer := range s.Observers {
		func() {
			defer func() { _ = recover() }() // observers report and decide nothing
			observer(ctx, o)
		}()
	}
}
