package tracing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/tracing"
)

// The hook is called some time after the lease was handed off. The hand-off took no time.
func TestHandOff_ofALeaseIsASpanThatEndsWhenItBegins(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	hook, err := tracing.New(tracing.WithTracerProvider(provider))
	require.NoError(t, err)
	start := time.Now().Add(-time.Second)
	hook.Release(t.Context(), guard.ReleaseEvent{
		LeaseEvent: guard.LeaseEvent{Event: guard.Event{Name: "work", Key: "k", Start: start}}, HandedOff: true,
	})
	all := spans.GetSpans()
	require.Len(t, all, 1)
	require.True(t, start.Equal(all[0].StartTime), all[0].StartTime)
	require.True(t, start.Equal(all[0].EndTime), all[0].EndTime)
}
