package main

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

// traceparentForm is version 00 of W3C Trace Context.
var traceparentForm = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// traceparent returns the trace context of the run: a span of its own in the trace of the caller,
// or a new trace if the caller has none.
func traceparent(caller string) string {
	const none = "00000000000000000000000000000000"
	trace, flags := randomHex(16), "01"
	if m := traceparentForm.FindStringSubmatch(caller); m != nil && m[1] != none && m[2] != none[:16] {
		trace, flags = m[1], m[3]
	}
	return "00-" + trace + "-" + randomHex(8) + "-" + flags
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // which never fails
	return hex.EncodeToString(b)
}
