package guardgrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func (m *middleware) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	q := &exchange{m: m, ctx: ctx, req: req, info: info, next: next, start: time.Now()}
	q.call.Core, q.call.Transport = m.core, q
	defer func() {
		q.call.Status = int(statusOf(q.err).Code())
		if q.call.Aborted {
			q.call.Status = int(codes.Unknown)
		}
		q.call.Report(ctx, q.start, nil)
	}()
	q.call.Serve(ctx)
	return q.reply, q.err
}

// covers reports whether a key of a call of that method counts.
func (m *middleware) covers(method string) bool {
	return len(m.methods) == 0 || slices.Contains(m.methods, method)
}

// requires reports whether calls must have a key.
func (m *middleware) requires() bool { return len(m.methods) > 0 && !m.Optional }

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

// KeepFinal is the default of WithPolicy. It keeps the codes that a repeat of the same call would
// get again: OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and
// OUT_OF_RANGE.
//
// The other codes say that the next attempt may end differently. UNAUTHENTICATED,
// PERMISSION_DENIED and RESOURCE_EXHAUSTED depend on the caller's rights and quota. ABORTED asks
// for another attempt. CANCELLED, DEADLINE_EXCEEDED, UNKNOWN, UNIMPLEMENTED, INTERNAL, UNAVAILABLE
// and DATA_LOSS are failures of the server or of the way to it. By google.rpc.Code's mapping to
// HTTP, this is guardhttp.KeepFinal, except that ABORTED is not kept.
func KeepFinal(s *status.Status) bool {
	switch s.Code() {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	default:
		return false
	}
}

// serverFailed reports whether a code says that the server has failed, by the conventions of
// OpenTelemetry for spans of gRPC servers.
func serverFailed(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	default:
		return false
	}
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
