package tracing

import (
	"context"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// traceparentLength is the length in version 00 of W3C Trace Context: version, trace ID, parent ID
// and flags, in hexadecimal digits, with hyphens between them.
const traceparentLength = 2 + 1 + 32 + 1 + 16 + 1 + 2

// labelOf returns the traceparent of the span in ctx, for a lease's label. It returns "" if the
// span is not sampled: a link to it would lead nowhere.
func (t *telemetry) labelOf(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() || !sc.IsValid() {
		return ""
	}
	var b [traceparentLength]byte
	copy(b[:], "00-")
	id, span := sc.TraceID(), sc.SpanID()
	hex.Encode(b[3:], id[:])
	b[35] = '-'
	hex.Encode(b[36:], span[:])
	copy(b[52:], "-01")
	return string(b[:])
}

// spanOf finds the span that labelOf has put into a label. The label comes from the store and may
// hold anything. The second result is the rest of the label.
func spanOf(label string) (sc trace.SpanContext, who string) {
	at := strings.LastIndexByte(label, ' ') + 1
	text := label[at:]
	if len(text) != traceparentLength || text[:3] != "00-" || text[35] != '-' || text[52:] != "-01" {
		return sc, label
	}
	id, err := trace.TraceIDFromHex(text[3:35])
	if err != nil {
		return sc, label
	}
	span, err := trace.SpanIDFromHex(text[36:52])
	if err != nil {
		return sc, label
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true}), strings.TrimSuffix(label[:at], " ")
}

// The values of onerun.link: the role of the span that the link leads to.
const (
	linkHolder   = "holder"   // holds the key
	linkFinished = "finished" // has done the work
	linkPrevious = "previous" // held the key before, while this call waited
)

// link adds a link to the span of the label to span, if there is one.
func (t *telemetry) link(span trace.Span, label, how string) {
	if t.set.noLinks || label == "" {
		return
	}
	if sc, _ := spanOf(label); sc.IsValid() {
		span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{keyLink.String(how)}})
	}
}
