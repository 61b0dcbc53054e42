package guardhttp

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

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
