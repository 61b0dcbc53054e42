package guardhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// An exchange is one request on its way through the middleware.
type exchange struct {
	m       *middleware
	next    http.Handler
	w       http.ResponseWriter
	r       *http.Request
	start   time.Time
	outcome Outcome

	in     *http.Request // what key functions and the handler get: r with a body that can be read twice
	body   *body
	stored string // the key in the store
	print  []byte // the fingerprint, or nil if there are none
	run    run
	origin string    // by which the run can be found later
	answer *recorder // nil until the handler is called
	kept   Keep
	queued bool // it is counted as waiting
}

// serve answers the request.
func (q *exchange) serve() {
	if !q.m.covers(q.r.Method) {
		q.outcome.Result = ResultUntouched
		q.next.ServeHTTP(q.w, q.r)
		return
	}
	result, err := q.read()
	switch {
	case result == ResultUntouched:
		q.outcome.Result = result
		q.body.handOver(q.in)
		q.next.ServeHTTP(q.w, q.in)
	case q.m.shadow:
		q.outcome.Result, q.outcome.Err = result, err
		q.shadow()
	case result != "":
		q.outcome.Result, q.outcome.Err = result, err
		q.refuse(result, 0, err)
	default:
		q.lead()
	}
}

// read finds out which request it is. It returns an empty Result if the request can be led, and otherwise what becomes of it.
func (q *exchange) read() (Result, error) {
	q.in = new(http.Request)
	*q.in = *q.r
	if q.in.Body == nil {
		q.in.Body = http.NoBody
	}
	q.body = newBody(q.in, q.m.maxBody)
	q.in.Body = q.body

	key, err := q.m.key(q.in)
	switch {
	case q.body.err != nil:
		return q.badBody()
	case errors.Is(err, ErrNoKey), err == nil && key == "":
		if q.m.optional {
			return ResultUntouched, nil
		}
		return ResultKeyMissing, err
	case err != nil:
		if invalid := (*KeyError)(nil); errors.As(err, &invalid) {
			return ResultKeyInvalid, err
		}
		return ResultRefused, err
	}
	scope := ""
	if q.m.scope != nil {
		scope, err = q.m.scope(q.in)
		switch {
		case q.body.err != nil:
			return q.badBody()
		case err != nil:
			return ResultRefused, fmt.Errorf("guardhttp: the scope: %w", err)
		case scope == "":
			return ResultRefused, errNoScope
		}
	}
	if q.m.prints() || q.m.wait > 0 { // net/http notices that a client has gone only after its body was read
		if _, err := q.body.load(); err != nil {
			return q.badBody()
		}
	}
	if q.m.prints() {
		if q.print, err = q.m.print.of(q.in, q.body.bytes); err != nil {
			return ResultBodyInvalid, fmt.Errorf("guardhttp: the fingerprint: %w", err)
		}
	}
	q.run.key, q.stored = key, q.m.identity(scope, key, q.in)
	return "", nil
}

var errNoScope = errors.New("guardhttp: the scope is empty")

// badBody says what became of a request whose body could not be read.
func (q *exchange) badBody() (Result, error) {
	if large := (*http.MaxBytesError)(nil); errors.As(q.body.err, &large) {
		return ResultBodyTooLarge, q.body.err
	}
	return ResultBodyInvalid, q.body.err
}

// lead runs the handler under a lease, or says why it does not run.
func (q *exchange) lead() {
	defer q.unqueue()
	err := q.attempt(q.m.once)
	if q.m.wait > 0 && q.answer == nil && errors.Is(err, guard.ErrBusy) && q.m.queue.enter(q.stored) {
		q.queued = true
		err = q.attempt(q.m.waiting)
	}
	if q.answer != nil {
		q.ended(err)
		return
	}
	q.unqueue()
	q.skipped(err)
}

// unqueue counts the request as one that does not wait.
func (q *exchange) unqueue() {
	if q.queued {
		q.queued = false
		q.m.queue.leave(q.stored)
	}
}

// errLeft is what becomes of a request whose client had left when the lease was granted.
var errLeft = errors.New("guardhttp: the request ended before it was its turn")

// attempt asks for the lease once, and runs the handler under it. While it waits, the request's end ends it; the run is detached
// from that.
func (q *exchange) attempt(opts []guard.Option) error {
	request := q.r.Context()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(request))
	defer cancel(nil)
	stop := context.AfterFunc(request, func() { cancel(context.Cause(request)) })
	defer stop()
	return q.m.guard.Do(ctx, q.stored, func(ctx context.Context) error {
		if !q.m.cancel && !stop() && request.Done() != nil {
			return errLeft
		}
		return q.handle(ctx)
	}, opts...)
}

// errNotKept tells the Guard that there is nothing to leave in the store.
var errNotKept = errors.New("guardhttp: nothing is kept")

// handle runs the handler. ctx is the lease's. It returns nil if the lease is to leave a marker.
func (q *exchange) handle(ctx context.Context) error {
	q.unqueue()
	lease, _ := guard.FromContext(ctx)
	q.outcome.Result, q.outcome.Fence = ResultRan, lease.Fence()
	ctx, cancel := context.WithTimeout(ctx, q.m.timeout)
	defer cancel()
	q.call(ctx, recording{most: q.m.records(), tolerant: !q.m.cancel, hold: true})

	if !q.answer.begun() && ctx.Err() != nil {
		q.refuse(givenUp, q.m.retryAfter, context.Cause(ctx))
		return errNotKept
	}
	record := q.conclude()
	if record == nil {
		return errNotKept
	}
	return lease.SetRecord(q.m.sealer.seal(record.encode(), q.stored))
}

// records returns how many bytes of a body are recorded, or -1 if no answer is.
func (m *middleware) records() int {
	if m.mode == Replay {
		return m.maxAnswer
	}
	return -1
}

// call calls the handler with ctx, and looks at its answer.
func (q *exchange) call(ctx context.Context, how recording) {
	how.ended = func() bool { return ctx.Err() != nil }
	q.answer = newRecorder(q.w, how)
	q.origin = q.m.origin(ctx)
	in := q.in.WithContext(context.WithValue(ctx, runKey{}, &q.run))
	q.body.handOver(in)
	q.next.ServeHTTP(q.answer.writer, in)
}

// conclude ends the recording, and returns the record to leave, or nil if there is nothing to keep.
func (q *exchange) conclude() *record {
	v := q.answer.end()
	q.outcome.Status = v.status
	q.kept = q.keep(v)
	switch q.kept {
	case KeepNothing:
		return nil
	case KeepTombstone:
		v.answer = nil
	}
	return &record{fingerprint: q.print, origin: q.origin, answer: v.answer}
}

// keep says what to keep of a run.
func (q *exchange) keep(v verdict) Keep {
	m := q.m
	if m.mode == Exclusive || (m.cancel || m.shadow) && (v.gone || q.r.Context().Err() != nil) {
		return KeepNothing
	}
	keep, chosen := q.run.chosen()
	if !chosen {
		keep = KeepAnswer
		final := v.status >= 200 // not taken over
		switch {
		case v.late && v.status >= 400:
			return KeepNothing // it may say no more than that the handler's context had ended
		case final && !m.policy(v.status, q.w.Header()):
			return KeepNothing
		}
	}
	switch {
	case keep != KeepAnswer:
		return keep
	case m.mode == Reject:
		return KeepTombstone
	case v.answer == nil && m.rerun:
		return KeepNothing
	case v.answer == nil:
		return KeepTombstone
	}
	return KeepAnswer
}

// ended is for a run whose lease was given back; err is what the Guard said.
func (q *exchange) ended(err error) {
	q.answer.sendLast()
	switch {
	case err == nil:
		q.outcome.Kept = q.kept
	case err != errNotKept: //nolint:errorlint // inside of another error it is not all that is to be said
		q.outcome.Err = err
	}
}

// skipped is for a request whose handler did not run; err is why.
func (q *exchange) skipped(err error) {
	var a *answer
	var retryAfter time.Duration
	q.outcome.Result, a, retryAfter, q.outcome.Err = q.judge(err)
	switch q.outcome.Result {
	case ResultReplayed:
		q.replay(a)
	case ResultDegraded:
		q.bare()
	default:
		q.refuse(q.outcome.Result, retryAfter, q.outcome.Err)
	}
}

// judge says what becomes of a request that got no lease: the answer to replay, or when to try again; and what there is to say about it
// beside the Result.
func (q *exchange) judge(err error) (result Result, a *answer, retryAfter time.Duration, why error) {
	m := q.m
	var busy *guard.BusyError
	var done *guard.DoneError
	switch {
	case errors.As(err, &done):
		return q.judgeRecord(done)
	case errors.As(err, &busy):
		retryAfter = m.retryAfter
		if busy.Left > 0 {
			retryAfter = min(retryAfter, busy.Left)
		}
		return ResultInFlight, nil, retryAfter, nil
	case errors.Is(err, guard.ErrStore) && m.open:
		return ResultDegraded, nil, 0, err
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrClosed):
		return ResultUnavailable, nil, m.retryAfter, err
	}
	return ResultCanceled, nil, m.retryAfter, err
}

// judgeRecord is judge for a request whose work is done.
func (q *exchange) judgeRecord(done *guard.DoneError) (result Result, a *answer, retryAfter time.Duration, why error) {
	r, err := q.m.readRecord(done.Record, q.stored)
	if err != nil {
		return ResultNotReplayable, nil, 0, err
	}
	q.outcome.Origin = r.origin
	switch {
	case !same(q.print, r.fingerprint):
		return ResultMismatch, nil, 0, nil
	case q.m.mode == Reject:
		return ResultDone, nil, done.Left, nil
	case r.answer == nil:
		return ResultNotReplayable, nil, 0, nil
	}
	return ResultReplayed, r.answer, 0, nil
}

func (m *middleware) readRecord(stored []byte, key string) (*record, error) {
	plain, err := m.sealer.open(stored, key)
	if err != nil {
		return nil, err
	}
	return decode(plain)
}

// replay gives an answer again.
func (q *exchange) replay(a *answer) {
	q.outcome.Status = a.status
	h := q.w.Header()
	for name, values := range a.header {
		if !neverReplayed[http.CanonicalHeaderKey(name)] { // whoever wrote the record
			h[name] = values
		}
	}
	h.Set(q.m.replayed, "true")
	if bodyAllowed(a.status) {
		h.Set("Content-Length", fmt.Sprint(len(a.body)))
	}
	q.w.WriteHeader(a.status)
	if bodyAllowed(a.status) {
		_, _ = q.w.Write(a.body) // the client may have gone
	}
}

// bare runs the handler as if there were no middleware.
func (q *exchange) bare() {
	q.call(q.r.Context(), recording{most: -1})
	q.outcome.Status = q.answer.end().status
}
