package guardhttp

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

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

// Replay implements idempotent.Transport.
func (q *exchange) Replay() {
	a := q.replayed
	q.call.Status = a.Status
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
		case idempotent.NeverReplayed(name): // whatever wrote the record
		case name == "Vary" && len(values) > 0:
			h[name] = addVary(h[name], values)
		case len(values) == 0 && len(h[name]) > 0:
			delete(h, name)
		default:
			h[name] = values // none, too, which keeps net/http from setting one
		}
	}
}

// A middleware for CORS inside of this one answers to the origin of the first request. A retry can
// come from another origin, for which the inner one has not answered: it does not run.

// errOrigin is the cause if a replay lacks the headers of CORS because its origin is another one.
var errOrigin = errors.New("guardhttp: the recorded answer allows another origin than that of the retry, so its Access-Control headers are " +
	"left out: put the middleware for CORS outside, so that it answers to each request")

// forOrigin removes from recorded headers those that say what an origin may do, unless they are for
// every origin or for that of the request. h has the headers that outer middleware has set for the
// request. It returns errOrigin if the request's origin then has none.
func forOrigin(recorded, h http.Header, r *http.Request) error {
	origin := r.Header.Get("Origin")
	allowed := fieldOf(recorded, "Access-Control-Allow-Origin")
	if len(allowed) == 0 || slices.Equal(allowed, []string{"*"}) || slices.Equal(allowed, []string{origin}) {
		return nil
	}
	maps.DeleteFunc(recorded, func(name string, _ []string) bool {
		name = http.CanonicalHeaderKey(name)
		return strings.HasPrefix(name, "Access-Control-") || name == "Timing-Allow-Origin"
	})
	if origin == "" || len(fieldOf(h, "Access-Control-Allow-Origin")) > 0 {
		return nil
	}
	return errOrigin
}

// fieldOf returns the values of a header whose name may be in any case.
func fieldOf(h http.Header, canonical string) (values []string) {
	for name, of := range h {
		if http.CanonicalHeaderKey(name) == canonical {
			values = append(values, of...)
		}
	}
	return values
}

// addVary adds recorded values of Vary to those that outer middleware has set for this request.
func addVary(set, recorded []string) []string {
	all := slices.Clone(recorded)
	for _, value := range set {
		if !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}
