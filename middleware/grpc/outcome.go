package guardgrpc

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An Outcome is how a call ended.
type Outcome struct {
	idempotency.Outcome

	// Method is the full name of the method: "/package.Service/Method".
	Method string
	// Code is that of the call's end, or UNKNOWN if the handler did not return.
	Code codes.Code
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
	o := Outcome{q.call.Report(q.ctx, q.start, nil), q.info.FullMethod, statusOf(q.err).Code()}
	if o.Aborted {
		o.Code = codes.Unknown
	}
	if tracked, ok := q.ctx.Value(trackKey{}).(*idempotent.Place[Outcome]); ok {
		tracked.Set(o)
	}
	for _, observer := range q.m.observers {
		idempotent.Contain(func() { observer(q.ctx, o) })
	}
}
