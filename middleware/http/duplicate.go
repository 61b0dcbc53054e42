package guardhttp

import (
	"net/http"
	"strconv"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// Read implements idempotent.Transport.
func (q *exchange) Read(a *idempotent.Answer) error {
	if a.Status < http.StatusOK || a.Status > 999 || !recordable(a.Header) || a.Type != "" || a.Trailer != nil {
		return idempotent.Unreadable(idempotent.Corrupt, nil)
	}
	for name := range a.Header {
		if !validName(name) {
			return idempotent.Unreadable(idempotent.Corrupt, nil)
		}
	}
	q.replayed = a
	strip(a.Header, q.m.without) // of a record from before WithoutHeaders
	return nil
}

// replayedHeader marks a replay.
const replayedHeader = "Idempotency-Replayed"

// replay sends a recorded answer again.
func (q *exchange) replay(a *idempotent.Answer) {
	q.status = a.Status
	h := q.w.Header()
	q.misplaced = forOrigin(a.Header, h, q.r)
	setHeaders(h, a.Header)
	h.Set(replayedHeader, "true")
	if bodyAllowed(a.Status) && sendsAtOnce(q.w) { // a compressor in front sends another length
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	q.w.WriteHeader(a.Status)
	if bodyAllowed(a.Status) {
		_, _ = q.w.Write(a.Body) // the client may have gone
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
