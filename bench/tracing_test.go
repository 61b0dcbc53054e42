package bench_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/tracing"
)

// dropped takes spans as an exporter does that costs nothing.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                             { return nil }

// BenchmarkTracing is what telemetry adds to an uncontended Do, on a store that costs next to
// nothing: with no provider set, with the SDK but no span sampled, and with every span sampled and
// exported in batches.
func BenchmarkTracing(b *testing.B) {
	sdk := func(sampler sdktrace.Sampler) []tracing.Option {
		return []tracing.Option{
			tracing.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(dropped{}))),
			tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))),
		}
	}
	for _, c := range []struct {
		name string
		hook func() (guard.Hook, error)
	}{
		{"hook=none", nil},
		{"hook=empty", func() (guard.Hook, error) { return guard.Hook{}, nil }},
		{"hook=tracing/provider=none", func() (guard.Hook, error) { return tracing.New() }},
		{"hook=tracing/provider=sdk/sampled=no", func() (guard.Hook, error) { return tracing.New(sdk(sdktrace.NeverSample())...) }},
		{"hook=tracing/provider=sdk/sampled=yes", func() (guard.Hook, error) { return tracing.New(sdk(sdktrace.AlwaysSample())...) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			opts := []guard.Option{guard.WithName("work")}
			if c.hook != nil {
				hook, err := c.hook()
				require.NoError(b, err)
				opts = append(opts, guard.WithHook(hook))
			}
			g, err := guard.New(memory.New(), opts...)
			require.NoError(b, err)
			defer func() { require.NoError(b, g.Close(context.Background())) }()
			ctx, f := context.Background(), func(context.Context) error { return nil }
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Do(ctx, "k", f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTracingByHand is what three spans and eight measurements cost that know nothing of
// leases: the limit for what tracing can cost.
func BenchmarkTracingByHand(b *testing.B) {
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithBatcher(dropped{})).Tracer("by hand")
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("by hand")
	histogram, err := meter.Float64Histogram("h")
	require.NoError(b, err)
	set := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("onerun.name", "work"), attribute.String("onerun.result", "ok")))}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		parent := ctx
		for i := range 3 {
			inside, span := tracer.Start(parent, "run work")
			span.SetAttributes(attribute.String("onerun.name", "work"), attribute.String("onerun.key", "0123456789abcdef"), attribute.String("onerun.result", "ok"),
				attribute.Int64("onerun.fence", int64(i)))
			span.End()
			if i == 0 {
				parent = inside
			}
		}
		for range 8 {
			histogram.Record(ctx, .001, set...)
		}
	}
}
