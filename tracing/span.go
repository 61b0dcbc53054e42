package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/signals"
)

// spanName returns the name of a span: the operation, and the name of the work.
func (t *telemetry) spanName(e *guard.Event, what string) string {
	w := t.names.of(e.Name)
	switch {
	case w == t.names.other:
		return what + " " + signals.Valid(e.Name)
	case what == "acquire":
		return w.acquire
	case what == "run":
		return w.run
	case what == "release":
		return w.release
	case what == "renew":
		return w.renew
	}
	return w.skip
}

// start begins a span.
func (t *telemetry) start(ctx context.Context, e *guard.Event, what string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, t.spanName(e, what), opts...)
}

// startOf begins a span of an event of a lease. If the caller has no span, the parent is the span
// of the lease's acquire. That is then the root of the trace, so all are sampled together.
func (t *telemetry) startOf(
	ctx context.Context, e *guard.LeaseEvent, what string, opts ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	if e.Origin != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpan(ctx, trace.SpanFromContext(e.Origin))
	}
	return t.start(ctx, &e.Event, what, opts...)
}

// common returns the attributes that each span has, with room for more.
func (t *telemetry) common(e *guard.Event) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	w := t.names.of(e.Name)
	name := w.name
	if w == t.names.other {
		name = keyName.String(signals.Valid(e.Name))
	}
	attrs = append(attrs, name)
	if key := t.redact.Key(e.Key); key != "" {
		attrs = append(attrs, keyKey.String(key))
	}
	return attrs
}

// end ends a span. The status stays unset if there was no error.
func end(span trace.Span, attrs []attribute.KeyValue, out signals.Outcome, at time.Time) {
	if out.ErrorType != "" {
		attrs = append(attrs, keyErrorType.String(out.ErrorType))
		span.SetStatus(codes.Error, out.ErrorType)
	}
	span.SetAttributes(attrs...)
	span.End(trace.WithTimestamp(at))
}
