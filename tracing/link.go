package tracing

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/internal/signals"
)

// labelOf returns the traceparent of the span in ctx, for a lease's label. It returns "" if the
// span is not sampled: a link to it would lead nowhere.
func (t *telemetry) labelOf(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() || !sc.IsValid() {
		return ""
	}
	var b [signals.TraceparentLength]byte
	copy(b[:], "00-")
	id, span := sc.TraceID(), sc.SpanID()
	hex.Encode(b[3:], id[:])
	b[35] = '-'
	hex.Encode(b[36:], span[:])
	copy(b[52:], "-01")
	return string(b[:])
}

// spanOf returns the span of the traceparent in a label, if there is one.
func spanOf(label string) (sc trace.SpanContext) {
	_, traceID, spanID := signals.SplitLabel(label)
	if traceID == "" {
		return sc
	}
	id, _ := trace.TraceIDFromHex(traceID)
	span, _ := trace.SpanIDFromHex(spanID)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true})
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
	if sc := spanOf(label); sc.IsValid() {
		span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{keyLink.String(how)}})
	}
}
