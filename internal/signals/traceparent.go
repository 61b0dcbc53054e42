package signals

import "strings"

// TraceparentLength is the length in version 00 of W3C Trace Context: version, trace ID, parent ID
// and flags, in hexadecimal digits, with hyphens between them.
const TraceparentLength = 2 + 1 + 32 + 1 + 16 + 1 + 2

// SplitLabel splits a label into who it names and the trace and span IDs of the traceparent of a
// sampled span at its end. They are "" if there is none. A label comes from the store and may hold
// anything.
func SplitLabel(label string) (who, traceID, spanID string) {
	at := strings.LastIndexByte(label, ' ') + 1
	text := label[at:]
	if len(text) != TraceparentLength || text[:3] != "00-" || text[35] != '-' || text[52:] != "-01" {
		return label, "", ""
	}
	traceID, spanID = text[3:35], text[36:52]
	if !isID(traceID) || !isID(spanID) {
		return label, "", ""
	}
	return strings.TrimSuffix(label[:at], " "), traceID, spanID
}

// isID reports whether an ID has only lower-case hexadecimal digits, and not only zeros.
func isID(id string) bool {
	return strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != ""
}
