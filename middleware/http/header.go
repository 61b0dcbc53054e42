package guardhttp

import (
	"net/http"
	"slices"
	"strings"
)

// neverReplayed are the headers of an answer that are not recorded, in canonical form: those of
// one connection (RFC 9110, section 7.6.1), those that net/http sets itself, and those that are
// secrets of the request that got them.
var neverReplayed = map[string]bool{
	"Connection":          true,
	"Keep-Alive":          true,
	"Proxy-Authenticate":  true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,

	"Content-Length": true,
	"Date":           true,

	"Authorization":    true,
	"Set-Cookie":       true,
	"Set-Cookie2":      true,
	"Www-Authenticate": true,
}

// replayable returns those headers of an answer that a replay has, too: not those that stood there
// before the handler was called, which whoever set them sets again. One that the handler has taken
// out has no values.
func replayable(h, before http.Header) http.Header {
	kept := make(http.Header, len(h))
	for name, values := range h {
		if old, ok := before[name]; ok && slices.Equal(old, values) {
			continue
		}
		if !neverReplayed[http.CanonicalHeaderKey(name)] && validName(name) {
			kept[name] = slices.Clone(values)
		}
	}
	for name := range before {
		if _, ok := h[name]; !ok && validName(name) && !neverReplayed[http.CanonicalHeaderKey(name)] {
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

// recordable reports whether headers are within what a record may hold.
func recordable(h http.Header) bool {
	lines, bytes := 0, 0
	for name, values := range h {
		lines += len(values)
		bytes += len(name)
		for _, v := range values {
			bytes += len(v)
			if !validValue(v) {
				return false
			}
		}
	}
	return len(h) <= maxHeaderNames && lines <= maxHeaderLines && bytes <= maxHeaderBytes
}

// hasTrailers reports whether an answer has headers that come after its body.
func hasTrailers(h http.Header) bool {
	if len(h["Trailer"]) > 0 {
		return true
	}
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
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
