package guardhttp

import (
	"net/http"
	"strconv"
)

// Read implements idempotent.Transport.
func (q *exchange) Read(recorded []byte) (err error) {
	if q.replayed, err = readAnswer(recorded); err != nil {
		return err
	}
	strip(q.replayed.header, q.m.without) // of a record from before WithoutHeaders
	return nil
}

// replayedHeader marks a replay.
const replayedHeader = "Idempotency-Replayed"

// replay sends a recorded answer again.
func (q *exchange) replay(a *answer) {
	q.status = a.status
	h := q.w.Header()
	q.misplaced = forOrigin(a.header, h, q.r)
	setHeaders(h, a.header)
	h.Set(replayedHeader, "true")
	if bodyAllowed(a.status) && sendsAtOnce(q.w) { // a compressor in front sends another length
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	q.w.WriteHeader(a.status)
	if bodyAllowed(a.status) {
		_, _ = q.w.Write(a.body) // the client may have gone
	}
}

// setHeaders sets recorded headers in h.
func setHeaders(h, recorded http.Header) {
	for name, values := range recorded {
		switch {
		case neverReplayed[http.CanonicalHeaderKey(name)]: // whatever wrote the record
		case name == "Vary" && len(values) > 0:
			h[name] = addVary(h[name], values)
		case len(values) == 0 && len(h[name]) > 0:
			delete(h, name)
		default:
			h[name] = values // none, too, which keeps net/http from setting one
		}
	}
}
