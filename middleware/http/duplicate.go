package guardhttp

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

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

// judge says what becomes of a request that got no lease: the answer to replay, or when to try
// again; and what there is to say about it beside the Result.
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
	setHeaders(h, a.header)
	h.Set(q.m.replayed, "true")
	if bodyAllowed(a.status) {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	q.w.WriteHeader(a.status)
	setHeaders(h, a.late)
	if bodyAllowed(a.status) {
		_, _ = q.w.Write(a.body) // the client may have gone
	}
}

// setHeaders sets recorded headers in h.
func setHeaders(h, recorded http.Header) {
	for name, values := range recorded {
		switch {
		case neverReplayed[http.CanonicalHeaderKey(name)]: // whoever wrote the record
		case len(values) == 0 && len(h[name]) > 0:
			delete(h, name)
		default:
			h[name] = values // none, too, which keeps net/http from setting one
		}
	}
}
