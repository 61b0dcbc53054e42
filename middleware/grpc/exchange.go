package guardgrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An exchange is one call on its way through the interceptor.
type exchange struct {
	m     *middleware
	ctx   context.Context // the call's
	req   any
	info  *grpc.UnaryServerInfo
	next  grpc.UnaryHandler
	start time.Time
	call  idempotent.Call

	recorder *recorder          // nil if no stream is known, or nothing is recorded
	found    *idempotent.Answer // what was found in the store
	first    result             // that is in it
	result                      // what the client gets
}

// A result is what a handler returns.
type result struct {
	reply any
	err   error
}

// Identify implements idempotent.Transport.
func (q *exchange) Identify() (idempotency.Result, error) {
	q.call.Route = q.info.FullMethod
	if !q.m.covers(q.info.FullMethod) {
		return idempotency.Untouched, nil
	}
	key, err := q.m.key(q.ctx, q.info, q.req)
	if result, err := q.m.OfKey(key, err, q.m.requires()); result != "" {
		return result, err
	}
	scope := ""
	if q.m.scope != nil {
		scope, err = q.m.scope(q.ctx, q.info, q.req)
		if result, err := q.m.OfScope(scope, err); result != "" {
			return result, err
		}
	}
	if q.m.Prints {
		q.call.Fingerprint, err = q.m.print.of(q.ctx, q.info, q.req)
		switch {
		case errors.Is(err, errNoMessage):
			return idempotency.Refused, fmt.Errorf("guardgrpc: %w", err)
		case err != nil:
			return idempotency.BodyInvalid, fmt.Errorf("guardgrpc: the fingerprint: %w", err)
		}
	}
	q.call.RunKey, q.call.Scope, q.call.Key = key, scope, q.m.Stored(scope, key, "method", q.info.FullMethod)
	return "", nil
}

// Pass implements idempotent.Transport.
func (q *exchange) Pass() { q.reply, q.err = q.next(q.ctx, q.req) }

// Send implements idempotent.Transport.
func (q *exchange) Send() {
	if q.recorder != nil && q.m.AfterRecord {
		q.recorder.sendHeld()
	}
}

// Discard implements idempotent.Transport: gRPC sends what the interceptor returns.
func (q *exchange) Discard() bool { return true }

// Bare implements idempotent.Transport.
func (q *exchange) Bare(ctx context.Context) { q.reply, q.err = q.next(ctx, q.req) }

// Handle implements idempotent.Transport: it runs the handler and records its reply.
func (q *exchange) Handle(ctx context.Context) idempotent.Left {
	header, trailer := q.run(ctx)
	s := statusOf(q.err)
	tardy := ctx.Err() != nil
	if tardy && !q.m.Shadow && q.ctxEnded(ctx, s) {
		q.Refuse(idempotent.GivenUp, q.m.RetryAfter, context.Cause(ctx))
		if q.recorder != nil {
			q.recorder.heldHeader, q.recorder.heldTrailer = nil, nil
		}
		return idempotent.Left{Failed: true}
	}
	left := idempotent.Left{Failed: serverFailed(s.Code())}
	if most := q.m.Records; most >= 0 {
		left.Answer = newAnswer(q.reply, s, header, trailer, most)
	}
	left.Keep = q.call.Keep(q.ctx, idempotent.Ending{Replayable: left.Answer != nil}, func() bool {
		// A late error may say no more than that the handler's context had ended.
		return (!tardy || s.Code() == codes.OK) && q.m.policy(s)
	})
	return left
}

// run calls the handler, and returns the metadata that it has set.
func (q *exchange) run(ctx context.Context) (header, trailer metadata.MD) {
	hold := q.m.AfterRecord && !q.m.Shadow
	if inner := grpc.ServerTransportStreamFromContext(ctx); inner != nil && (q.m.Records >= 0 || hold) {
		q.recorder = &recorder{inner: inner, call: q.ctx, tolerant: !q.m.ClientCancel && !q.m.Shadow, hold: hold, without: q.m.without}
		defer q.recorder.end()
		ctx = grpc.NewContextWithServerTransportStream(ctx, q.recorder)
	}
	q.reply, q.err = q.next(ctx, q.req)
	if q.recorder != nil {
		return q.recorder.end()
	}
	return nil, nil
}

// statusOf returns the status that gRPC makes of a handler's error.
func statusOf(err error) *status.Status {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return s
}

// ctxEnded reports whether a handler's error says no more than that the handler's context has
// ended, although the client did not end it. CANCELLED or UNKNOWN would then mislead the client.
func (q *exchange) ctxEnded(ctx context.Context, s *status.Status) bool {
	if q.m.ClientCancel && q.ctx.Err() != nil {
		return false
	}
	switch s.Code() {
	case codes.OK:
		return false
	case codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return errors.Is(q.err, context.Cause(ctx)) || errors.Is(q.err, ctx.Err())
	}
}

// Read implements idempotent.Transport.
func (q *exchange) Read(a *idempotent.Answer) (err error) {
	q.found = a
	q.first.reply, q.first.err, err = parse(a)
	return err
}

// Replay implements idempotent.Transport.
func (q *exchange) Replay() {
	marker := metadata.Pairs("idempotency-replayed", "true")
	// The client may have gone.
	_ = grpc.SetHeader(q.ctx, metadata.Join(replayable(nil, q.found.Header, q.m.without), marker))
	_ = grpc.SetTrailer(q.ctx, replayable(nil, q.found.Trailer, q.m.without))
	q.reply, q.err = q.first.reply, q.first.err
}
