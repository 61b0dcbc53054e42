package guardgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An Outcome is a Result with its details. It contains no key.
type Outcome struct {
	Result idempotency.Result
	// Name is the kind of work: that of guard.WithName, or the full method.
	Name string
	// Method is the full name of the method: "/package.Service/Method".
	Method string
	// Shadow says that the handler ran whatever Result is (WithShadow).
	Shadow bool
	// Code is that of the call's end, or UNKNOWN if the handler did not return.
	Code codes.Code
	// Kept is what the run has left in the store.
	Kept idempotency.Keep
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
	// lost, guard.ErrStore, an *idempotency.RecordError or
	// KeyError, or the error of a function of yours.
	// guard.Ran says of it whether the handler ran. It may contain what a client must not see.
	Err error
}

type trackKey struct{}

// Track returns a context for a call, and a function that returns the call's Outcome once the
// interceptor has returned. It is for interceptors in front, such as a log:
//
//	ctx, outcome := guardgrpc.Track(ctx)
//	reply, err := handler(ctx, req)
//	log.Print(info.FullMethod, outcome().Result)
//
// Result is empty if the call did not get to an interceptor of this package, or is still there. The
// function is safe for concurrent use.
func Track(ctx context.Context) (context.Context, func() Outcome) {
	p := new(idempotent.Place[Outcome])
	return context.WithValue(ctx, trackKey{}, p), p.Get
}

// report notifies hooks and observers of the call's end.
func (q *exchange) report() {
	c := &q.call
	o := Outcome{
		Result: c.Result, Name: c.Name(), Method: q.info.FullMethod, Shadow: q.m.Shadow, Code: statusOf(q.err).Code(),
		Kept: c.Kept, Label: c.Label, Fence: c.Fence, Aborted: c.Aborted, Duration: time.Since(q.start), Err: c.Err,
	}
	if c.Aborted {
		o.Code = codes.Unknown
	}
	if tracked, ok := q.ctx.Value(trackKey{}).(*idempotent.Place[Outcome]); ok {
		tracked.Set(o)
	}
	var refused error // if it is the server's mistake
	if c.Result == idempotency.Refused {
		refused = c.Err
	}
	c.Report(q.ctx, q.start, o.Duration, refused)
	for _, observer := range q.m.observers {
		idempotent.Contain(func() { observer(q.ctx, o) })
	}
}
