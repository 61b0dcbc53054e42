package guardhttp

import (
	"errors"
	"maps"
	"net/http"
	"reflect"
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

// replayable returns those headers of an answer that a replay has, too: not those that were set
// before the handler was called, because the code that set them sets them again. A header that the
// handler has removed has no values.
func replayable(h, before http.Header) http.Header {
	kept := make(http.Header, len(h))
	for name, values := range h {
		if old, ok := before[name]; ok && slices.Equal(old, values) {
			continue
		}
		if !idempotent.NeverReplayed(name) && validName(name) {
			kept[name] = slices.Clone(values)
		}
	}
	for name := range before {
		if _, ok := h[name]; !ok && validName(name) && !idempotent.NeverReplayed(name) {
			kept[name] = nil
		}
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") { // headers that it makes hop-by-hop
			delete(kept, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return kept
}

// strip removes the headers of WithoutHeaders.
func strip(h http.Header, without []string) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return slices.Contains(without, http.CanonicalHeaderKey(name)) })
}

// recordable reports whether headers are within what a record may hold.
func recordable(h http.Header) bool {
	return idempotent.Recordable(h, func(_, value string) bool { return validValue(value) })
}

// hasTrailers reports whether an answer has headers that come after its body.
func hasTrailers(h http.Header) bool { return len(h["Trailer"]) > 0 || trailers(h) != nil }

// trailers returns the headers that come after the body, and are not in the header Trailer.
func trailers(h http.Header) (found http.Header) {
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			if found == nil {
				found = http.Header{}
			}
			found[name] = values
		}
	}
	return found
}

// isEventStream reports whether an answer is a stream of server-sent events, which has no end.
func isEventStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// validName reports whether a header can have that name (a token of RFC 9110, section 5.6.2).
func validName(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// validValue reports whether a header can have that value. net/http takes line breaks out of what
// handlers set, so an answer with one would not be replayed as it was.
func validValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// bodyAllowed reports whether an answer with that status has a body (RFC 9110, sections 6.4.1 and
// 15).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// contentLength returns the announced length of a body, or -1.
func contentLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// sendsAtOnce reports whether w is a writer of net/http that takes the header as it is when
// WriteHeader is called. http.TimeoutHandler's takes what the header is in the end.
func sendsAtOnce(w http.ResponseWriter) bool {
	t := reflect.TypeOf(w)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "net/http" && t.Elem().Name() != "timeoutWriter"
}
