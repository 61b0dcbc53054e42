package guardhttp

import (
	"cmp"
	"context"
	"net/http"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// Handle implements idempotent.Transport: it runs the handler and records its answer.
func (q *exchange) Handle(ctx context.Context) (left idempotent.Left) {
	m := q.m
	how := recording{most: m.Records()}
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

// conclude ends the recording, and returns what the run leaves. ctx is the handler's.
func (q *exchange) conclude(ctx context.Context) idempotent.Left {
	if ctx.Err() != nil && !q.m.Shadow && q.answer.abandon() {
		q.answer.forget()
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
