package guardasynq_test

import (
	"context"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// The trace goes from the enqueuer of a task, through its headers, to everything here that sees
// the task, even by way of a copy or a follow-up.
func TestOTel_aTaskCarriesItsEnqueuersTraceOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy     guardasynq.BusyPolicy
		attempts int
		held     bool
	}{
		"at once":        {attempts: 3},
		"postponed":      {attempts: 3, held: true},
		"as a copy":      {attempts: 0, held: true},
		"as a follow-up": {attempts: 3, held: true, busy: guardasynq.Coalesce},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := tracetest.NewSpanRecorder()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
			tracer := provider.Tracer("test")

			var mu sync.Mutex
			seen := map[string]map[trace.SpanID]bool{}
			see := func(what string, ctx context.Context) {
				mu.Lock()
				defer mu.Unlock()
				if seen[what] == nil {
					seen[what] = map[trace.SpanID]bool{}
				}
				seen[what][trace.SpanContextFromContext(ctx).SpanID()] = true
			}
			s, w := newAqSite(t), newAqWork(t)
			g := s.newGuard(t, guard.WithHook(guard.Hook{
				AcquireStart: func(ctx context.Context, _ guard.Event) context.Context { see("acquire", ctx); return ctx },
				RunStart: func(ctx context.Context, _ guard.RunEvent) context.Context {
					see("run", ctx)
					ctx, _ = tracer.Start(ctx, "run")
					return ctx
				},
				RunEnd: func(ctx context.Context, _ guard.RunEndEvent) { trace.SpanFromContext(ctx).End() },
			}))
			m := s.middlewareOf(t, g, guardasynq.FromJSON("key"), guardasynq.WithBusy(c.busy), aqObserve(func(ctx context.Context, _ aqOutcome) { see("observer", ctx) }))
			guarded := m(w)
			s.serve(t, aqConfig(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				return guarded.ProcessTask(propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(task.Headers())), task)
			}))
			t.Cleanup(w.release)
			var holder *aqRun
			if c.held {
				s.enqueue(t, "import", aqJSON("k", "holder"))
				holder = w.next(t)
			}

			ctx, request := tracer.Start(t.Context(), "POST /imports")
			headers := map[string]string{}
			propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(headers))
			s.enqueueTask(t, asynq.NewTaskWithHeaders("import", []byte(aqJSON("k", "1")), headers), asynq.MaxRetry(c.attempts))
			request.End()
			if c.held {
				result := resultPostponed
				if c.busy == guardasynq.Coalesce {
					result = resultCoalesced
				}
				s.outcomes.await(t, result, 1)
				holder.returns(nil)
			}
			run := w.next(t)
			inside := trace.SpanContextFromContext(run.ctx)
			require.Equal(t, request.SpanContext().TraceID(), inside.TraceID())
			run.returns(nil)
			s.awaitEmpty(t)
			require.Eventually(t, func() bool {
				for _, span := range spans.Ended() {
					if span.SpanContext().SpanID() == inside.SpanID() {
						return span.Parent().SpanID() == request.SpanContext().SpanID() && span.Parent().IsRemote()
					}
				}
				return false
			}, aqSoon, aqPoll)
			mu.Lock()
			defer mu.Unlock()
			for _, what := range []string{"acquire", "run", "observer"} {
				require.Contains(t, seen[what], request.SpanContext().SpanID(), what)
			}
		})
	}
}
