package guardhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An exchange is one request on its way through the middleware.
type exchange struct {
	m     *middleware
	next  http.Handler
	w     http.ResponseWriter
	r     *http.Request
	start time.Time
	call  idempotent.Call

	// what key functions and the handler get: r with a body that can be read twice
	in         *http.Request // at first &request
	request    http.Request
	body       body
	connection connectionBody
	client     interrupter
	answer     *recorder          // nil until the handler is called
	replayed   *idempotent.Answer // what was found in the store
	fiber      bool               // see errFiber
	route      string             // the pattern that it matches in a mux behind the middleware
	misplaced  error              // why the answer is not that of the handler
}

func (m *middleware) wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("guardhttp: the handler must not be nil")
	}
	if isTimeoutHandler(next) {
		panic("guardhttp: http.TimeoutHandler must be outside of the middleware: inside, it answers while its handler still runs")
	}
	fiber := byFiber(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &exchange{m: m, next: next, w: w, r: r, start: time.Now(), fiber: fiber}
		q.call.Core, q.call.Transport = m.core, q
		defer func() { q.call.Report(q.r.Context(), q.start, q.misplaced) }()
		defer q.handBack()
		q.call.Serve(r.Context())
	})
}

// Identify implements idempotent.Transport.
func (q *exchange) Identify() (idempotency.Result, error) {
	if !q.m.covers(q.r.Method) || !q.routed() {
		return idempotency.Untouched, nil
	}
	result, err := q.read()
	switch {
	case result == idempotency.Untouched || q.m.Shadow:
	case q.fiber:
		return idempotency.Refused, errFiber
	case byGRPC(q.r):
		return idempotency.Refused, errGRPC
	}
	return result, err
}

// read determines the key and the fingerprint of the request. It returns an empty Result if the
// request can run under a lease, and otherwise its result.
func (q *exchange) read() (idempotency.Result, error) {
	q.request = *q.r
	q.in = &q.request
	if q.in.Body == nil {
		q.in.Body = http.NoBody
	}
	q.body.take(q.in, q.m.maxBody)
	q.in.Body = &q.body
	q.call.Route = cmp.Or(q.r.Pattern, q.route)
	key, err := q.m.key(q.in)
	if q.body.err != nil {
		return q.badBody()
	}
	if result, err := q.m.OfKey(key, err, q.m.requires(q.r.Method)); result != "" {
		return result, err
	}
	scope := ""
	if q.m.scope != nil {
		rewind(q.in, &q.body)
		scope, err = q.m.scope(q.in)
		if q.body.err != nil {
			return q.badBody()
		}
		if result, err := q.m.OfScope(scope, err); result != "" {
			return result, err
		}
	}
	// net/http notices that a client has gone only after its body was read
	if q.m.Prints || q.m.Wait > 0 {
		if _, err := q.body.load(); err != nil {
			return q.badBody()
		}
	}
	if q.m.Prints {
		rewind(q.in, &q.body)
		if q.call.Fingerprint, err = q.m.print.of(q.in, q.body.bytes); err != nil {
			return idempotency.BodyInvalid, fmt.Errorf("guardhttp: the fingerprint: %w", err)
		}
	}
	q.call.RunKey, q.call.Scope, q.call.Key = key, scope, q.m.identity(scope, key, q.routeHost(), q.in)
	return "", nil
}

// badBody returns the result of a request whose body could not be read.
func (q *exchange) badBody() (idempotency.Result, error) {
	if large := (*http.MaxBytesError)(nil); errors.As(q.body.err, &large) {
		return idempotency.BodyTooLarge, q.body.err
	}
	return idempotency.BodyInvalid, q.body.err
}

// Handle implements idempotent.Transport: it runs the handler and records its answer.
func (q *exchange) Handle(ctx context.Context) (left idempotent.Left) {
	m := q.m
	how := recording{most: m.Records}
	if !m.Shadow {
		q.client = interrupter{ctx: ctx, q: q}
		defer q.client.stop()
		how = recording{most: m.MaxAnswer, keep: true, tolerant: !m.ClientCancel, client: &q.client}
	}
	q.run(ctx, how, func() { left = q.conclude(ctx) })
	return left
}

// run calls the handler with ctx, which contains the run, and records its answer until conclude has
// returned.
func (q *exchange) run(ctx context.Context, how recording, conclude func()) {
	how.ctx, how.run, how.without = ctx, &q.call.Run, q.m.without
	q.w = ending(q.w)
	q.answer = newRecorder(q.w, how)
	returned := false
	defer func() {
		if !returned {
			q.answer.close()
		}
	}()
	q.pass(q.answer.writer, q.in.WithContext(ctx))
	conclude()
	returned = true
}

// pass calls the handler. in is a copy of the request.
func (q *exchange) pass(w http.ResponseWriter, in *http.Request) {
	q.body.attach(in)
	in.Trailer = q.r.Trailer // reading the body has filled it in
	if q.readsConnection() && (in.ContentLength < 0 || q.client.ctx != nil) {
		q.connection = connectionBody{in.Body, q, in}
		in.Body = &q.connection
	}
	q.in = in
	q.next.ServeHTTP(w, in)
}

// readsConnection reports whether the handler reads the body from the connection.
func (q *exchange) readsConnection() bool { return !q.body.loaded && q.body.source != http.NoBody }

// conclude ends the recording, and returns what the run leaves. ctx is the handler's.
func (q *exchange) conclude(ctx context.Context) idempotent.Left {
	if ctx.Err() != nil && !q.m.Shadow && q.answer.abandon() {
		q.Refuse(idempotent.GivenUp, q.m.RetryAfter, context.Cause(ctx))
		if q.answer.abandoned() {
			return idempotent.Left{Failed: true}
		}
	}
	v := q.answer.end()
	elsewhere := silence{}
	if v.silent {
		if elsewhere = silenceOf(q.w); elsewhere.err != nil {
			v.answer, v.status = nil, cmp.Or(elsewhere.status, v.status)
		}
	}
	left := idempotent.Left{Keep: q.keep(v)}
	switch {
	case !v.silent:
	case elsewhere.err != nil:
		q.misplaced, left.Err = elsewhere.err, elsewhere.err
		q.answer.passOn()
	case left.Keep == idempotency.KeepNothing:
		q.answer.passOn()
	case byWrapMiddleware():
		left.Keep, q.misplaced, left.Err = idempotency.KeepTombstone, errWrapMiddleware, errWrapMiddleware
		q.answer.passOn()
	case !q.answer.sendEmpty():
		v = verdict{} // the handler has taken over the connection
		left.Keep = q.keep(v)
	}
	q.call.Status = v.status
	if v.orphan {
		q.misplaced = errTimeoutHandler
		left.Err = errTimeoutHandler
	}
	left.Failed = v.status >= http.StatusInternalServerError
	left.Answer = v.answer
	return left
}

// keep returns what to keep of a run.
func (q *exchange) keep(v verdict) idempotency.Keep {
	e := idempotent.Ending{Gone: v.gone, Unsure: v.orphan, Undecided: v.silent, Replayable: v.answer != nil}
	return q.call.Keep(q.r.Context(), e, func() bool {
		switch {
		case v.tardy && v.status >= http.StatusBadRequest:
			return false // it may say no more than that the handler's context had ended
		case v.status < http.StatusOK: // taken over
			return true
		}
		return q.m.policy(v.status, q.w.Header())
	})
}

// Send implements idempotent.Transport.
func (q *exchange) Send() { q.answer.sendKept() }

// Discard implements idempotent.Transport.
func (q *exchange) Discard() bool { return q.answer.discard() }

// Pass implements idempotent.Transport.
func (q *exchange) Pass() {
	if q.in == nil {
		q.next.ServeHTTP(q.w, q.r)
		return
	}
	q.pass(q.w, q.in)
}

// Bare implements idempotent.Transport.
func (q *exchange) Bare(ctx context.Context) {
	q.run(ctx, recording{most: -1}, func() {
		v := q.answer.end()
		q.call.Status = v.status
		if v.silent {
			q.answer.passOn()
		}
	})
}

// handBack copies to the original request what outer code looks for there.
func (q *exchange) handBack() {
	if q.in != nil {
		q.r.Pattern = q.in.Pattern             // a mux has set it, for code in front of us
		q.r.MultipartForm = q.in.MultipartForm // net/http removes its files in the end
	}
}

// maxWriters bounds how many writers are unwrapped: Unwrap methods may lead in a circle.
const maxWriters = 100

// ending returns w, or a writer without optional methods if the Unwrap methods of w do not end:
// http.ResponseController would look inside of it for ever.
func ending(w http.ResponseWriter) http.ResponseWriter {
	inner := w
	for range maxWriters {
		u, ok := inner.(unwrapper)
		if !ok {
			return w
		}
		inner = u.Unwrap()
	}
	return struct{ http.ResponseWriter }{w}
}

// grace is how long a client has to take the rest of an answer after the context of the handler
// has ended.
const grace = time.Second

// An interrupter ends calls of a handler that wait for its client, a moment after the context of
// the handler has ended: a client that has stopped reading, or sending, would otherwise keep its
// key for as long as it likes.
type interrupter struct {
	ctx   context.Context // the handler's; nil if there is none to watch
	q     *exchange
	mu    sync.Mutex
	over  bool
	fired bool
	unset func() bool // stops the watch; nil if there is none
}

// watch begins to wait for the end of the context. Most handlers never wait for their clients, and
// need no timer.
func (i *interrupter) watch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil && i.unset == nil && !i.over {
		i.unset = context.AfterFunc(i.ctx, i.interrupt)
	}
}

func (i *interrupter) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return
	}
	i.fired = true
	control := http.NewResponseController(i.q.w)
	// A writer that has no deadlines does not wait for a client, or cannot be helped.
	_ = control.SetWriteDeadline(time.Now().Add(grace))
	if i.q.readsConnection() {
		_ = control.SetReadDeadline(time.Now().Add(grace))
	}
}

// stop ends the watch, after the handler has returned. The connection may serve other requests, so
// it gets back the deadline that its server gives to each.
func (i *interrupter) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return
	}
	i.over = true
	if i.unset != nil {
		i.unset()
	}
	if !i.fired {
		return
	}
	var deadline time.Time
	if server, ok := i.q.r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		deadline = i.q.start.Add(server.WriteTimeout)
	}
	_ = http.NewResponseController(i.q.w).SetWriteDeadline(deadline)
}
