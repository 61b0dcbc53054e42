package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// linkable puts the traceparent of a run into the label of its lease.
var linkable = guard.WithHook(guard.Hook{Label: func(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}})

// traced is an observer as a user of OpenTelemetry writes it: a request that finds the record of a
// first run links to that.
func traced(ctx context.Context, o idempotency.Outcome) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("onerun.result", string(o.Result)), attribute.String("onerun.kept", o.Kept.String()))
	if o.Err != nil {
		span.RecordError(o.Err)
	}
	label := strings.Fields(o.Label)
	if len(label) == 0 {
		return
	}
	first := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": label[len(label)-1]})
	if link := trace.SpanContextFromContext(first); link.IsValid() {
		span.AddLink(trace.Link{SpanContext: link})
	}
}

// serveTraced serves h with a span around each request, as otelhttp makes them.
func serveTraced(t *testing.T, g *guard.Guard, h http.HandlerFunc, opts ...guardhttp.Option) (*lifeServer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	idempotent, _ := lifeIdempotent(t, g, h, append(opts, idempotency.WithLease(linkable), idempotency.WithObserver(traced))...)
	return lifeListen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := provider.Tracer("test").Start(r.Context(), "POST", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		idempotent.ServeHTTP(w, r.WithContext(ctx))
	})), spans
}

// awaitSpan returns the n-th span when it has ended.
func awaitSpan(t *testing.T, spans *tracetest.SpanRecorder, n int) sdktrace.ReadOnlySpan {
	t.Helper()
	require.Eventually(t, func() bool { return len(spans.Ended()) >= n }, lifeSoon, lifePoll)
	return spans.Ended()[n-1]
}

func requireSpan(t *testing.T, span sdktrace.ReadOnlySpan, result idempotency.Result, linksTo ...trace.SpanContext) {
	t.Helper()
	require.Contains(t, span.Attributes(), attribute.String("onerun.result", string(result)))
	var links []trace.SpanID
	for _, link := range span.Links() {
		links = append(links, link.SpanContext.SpanID())
	}
	var want []trace.SpanID
	for _, first := range linksTo {
		want = append(want, first.SpanID())
	}
	require.Equal(t, want, links)
}

// Row 41 with OpenTelemetry.
func TestOTel_aReplaysSpanLinksToTheFirstRuns(t *testing.T) {
	t.Parallel()
	const key, scope, body = "the-raw-key", "the-raw-tenant", "the-raw-body"
	handlers := make(chan trace.SpanContext, 10)
	s, spans := serveTraced(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, r *http.Request) {
		handlers <- trace.SpanContextFromContext(r.Context())
		w.WriteHeader(http.StatusCreated)
	})
	for range 3 {
		require.Equal(t, http.StatusCreated, s.post(t, key, body, "X-Tenant", scope).status)
	}
	requireProblem(t, s.post(t, key, body+" of another", "X-Tenant", scope), http.StatusUnprocessableEntity, idempotency.Mismatch)
	requireProblem(t, s.post(t, key+" x", body, "X-Tenant", scope), http.StatusBadRequest, idempotency.KeyInvalid)

	first := awaitSpan(t, spans, 1)
	require.Equal(t, first.SpanContext().SpanID(), lifeReceive(t, handlers, "a run").SpanID(), "the handler is inside of its request's span")
	requireSpan(t, first, idempotency.Ran)
	requireSpan(t, awaitSpan(t, spans, 2), idempotency.Replayed, first.SpanContext())
	requireSpan(t, awaitSpan(t, spans, 3), idempotency.Replayed, first.SpanContext())
	requireSpan(t, awaitSpan(t, spans, 4), idempotency.Mismatch, first.SpanContext())
	requireSpan(t, awaitSpan(t, spans, 5), idempotency.KeyInvalid)
	require.Empty(t, handlers)

	for _, span := range spans.Ended() {
		text := fmt.Sprintf("%+v %+v %+v %+v", span.Name(), span.Attributes(), span.Links(), span.Events())
		for _, secret := range []string{key, scope, body} {
			require.NotContains(t, text, secret)
		}
	}
}
