package guardhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// lead runs the handler under a lease, or says why it does not run.
func (q *exchange) lead() {
	defer q.unqueue()
	err := q.ask()
	if q.m.wait > 0 && q.answer == nil && errors.Is(err, guard.ErrBusy) && q.m.queue.enter(q.stored) {
		q.queued = true
		err = q.attempt(q.m.waiting)
		if q.m.open {
			q.m.breaker.note(err)
		}
	}
	if q.answer != nil {
		q.ended(err)
		return
	}
	if q.m.wait > 0 && !q.queued {
		q.tellSkip(err) // as it was no more than a probe
	}
	q.unqueue()
	q.skipped(err)
}

// ask makes the first attempt. With WithFailOpen, it does not wait long for the store.
func (q *exchange) ask() error {
	if !q.m.open {
		return q.attempt(q.m.first)
	}
	if !q.m.breaker.allows() {
		return errBreaker
	}
	q.limit = openPatience
	err := q.attempt(q.m.first)
	q.limit = 0
	if errors.Is(err, errNoAnswer) {
		err = fmt.Errorf("guardhttp: %w: it has not answered within %v", guard.ErrStore, openPatience)
	}
	q.m.breaker.note(err)
	return err
}

// errNoAnswer ends an attempt whose store does not answer.
var errNoAnswer = errors.New("guardhttp: no answer")

// unqueue counts the request as one that does not wait.
func (q *exchange) unqueue() {
	if q.queued {
		q.queued = false
		q.m.queue.leave(q.stored)
	}
}

// errLeft is what becomes of a request whose client had left when the lease was granted.
var errLeft = errors.New("guardhttp: the request ended before it was its turn")

// attempt asks for the lease once, and runs the handler under it. While it waits, the request's
// end ends it; the run is detached from that.
func (q *exchange) attempt(opts []guard.Option) error {
	ctx := &tether{Context: q.r.Context()}
	defer ctx.close()
	if q.limit > 0 {
		defer time.AfterFunc(q.limit, func() { ctx.snap(errNoAnswer) }).Stop()
	}
	err := q.m.guard.Do(ctx, q.stored, func(run context.Context) error {
		if !ctx.cut(!q.m.cancel) {
			return errLeft
		}
		return q.handle(run)
	}, opts...)
	if ctx.hasSnapped() && q.answer == nil && q.r.Context().Err() == nil {
		return errNoAnswer
	}
	return err
}

// tellSkip has the hooks told that the key was busy, if it was.
func (q *exchange) tellSkip(err error) {
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		q.skip, q.holder = "busy", busy.Label
	}
}

// errFailed tells the Guard that the handler has failed: it answered so, or not at all. Nothing is
// left in the store.
var errFailed = errors.New("guardhttp: the handler failed, and nothing is kept")

// handle runs the handler. leased is the lease's context.
func (q *exchange) handle(leased context.Context) error {
	q.unqueue()
	lease, _ := guard.FromContext(leased)
	q.outcome.Result, q.outcome.Fence = ResultRan, lease.Fence()
	ctx := &runContext{Context: leased, run: &q.run, deadline: time.Now().Add(q.m.timeout)}
	defer ctx.close()
	q.client = interrupter{ctx: ctx, q: q}
	defer q.client.stop()
	q.call(ctx, recording{most: q.m.records(), tolerant: !q.m.cancel, hold: true, client: &q.client})

	if ctx.Err() != nil && q.answer.abandon() {
		q.answer.forget()
		q.refuse(givenUp, q.m.retryAfter, context.Cause(ctx))
		if q.answer.abandoned() {
			return errFailed
		}
	}
	record := q.conclude()
	switch {
	case record == nil && q.outcome.Status >= http.StatusInternalServerError:
		return errFailed
	case record == nil:
		lease.DiscardMarker()
		return nil
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

// call calls the handler with ctx, in which the run is, and looks at its answer.
func (q *exchange) call(ctx context.Context, how recording) {
	how.ctx, how.run = ctx, &q.run
	q.answer = newRecorder(q.w, how)
	returned := false
	defer func() {
		if !returned {
			q.answer.close()
		}
	}()
	q.origin = q.m.origin(ctx)
	in := q.in.WithContext(ctx)
	q.pass(q.answer.writer, in)
	returned = true
}

// conclude ends the recording, and returns the record to leave, or nil if there is nothing to
// keep.
func (q *exchange) conclude() *record {
	v := q.answer.end()
	q.kept = q.keep(v)
	switch {
	case !v.silent:
	case q.kept == KeepNothing:
		q.answer.passOn()
	case !q.answer.sendEmpty():
		v = verdict{} // the handler has taken over the connection
		q.kept = q.keep(v)
	}
	q.outcome.Status = v.status
	if v.orphan {
		q.misplaced = errTimeoutHandler
	}
	if q.kept == KeepNothing {
		return nil
	}
	if q.kept == KeepTombstone {
		v.answer = nil
	}
	return &record{fingerprint: q.print, origin: q.origin, answer: v.answer}
}

// keep says what to keep of a run.
func (q *exchange) keep(v verdict) Keep {
	m := q.m
	switch {
	case m.mode == Exclusive:
		return KeepNothing
	case (m.cancel || m.shadow) && (v.gone || q.r.Context().Err() != nil):
		return KeepNothing
	case m.shadow && v.silent:
		return KeepNothing // a framework may answer later, and shadow mode must not prevent that
	case v.orphan:
		return KeepTombstone // whatever the policy: a retry must not run beside it
	}
	keep, chosen := q.run.chosen()
	if !chosen {
		keep = KeepAnswer
		final := v.status >= 200 // not taken over
		switch {
		case v.tardy && v.status >= 400:
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
	q.answer.sendHeld()
	switch {
	case err == nil:
		q.outcome.Kept, q.outcome.Err = q.kept, q.misplaced
	case err != errFailed: //nolint:errorlint // inside another error, it is not everything
		q.outcome.Err = err
	}
}

// bare runs the handler as if there were no middleware.
func (q *exchange) bare() {
	q.call(q.unled(), recording{most: -1})
	v := q.answer.end()
	q.outcome.Status = v.status
	if v.silent {
		q.answer.passOn()
	}
}

// unled returns the context for a handler that runs without a lease.
func (q *exchange) unled() context.Context {
	return context.WithValue(q.r.Context(), runKey{}, &q.run)
}
