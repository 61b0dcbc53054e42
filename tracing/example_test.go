package tracing_test

import (
	"context"
	"fmt"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/tracing"
)

// In earnest the exporter is one to your collector, in a batcher, and the store is Redis.
func ExampleNew() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	hook, err := tracing.New(tracing.WithTracerProvider(provider))
	if err != nil {
		panic(err)
	}
	g, err := guard.New(memory.New(), guard.WithHook(hook))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())

	ctx, request := provider.Tracer("shop").Start(context.Background(), "GET /report")
	err = g.Do(ctx, "report:2026-11-21", func(context.Context) error { return nil }, guard.WithName("report"))
	request.End()

	fmt.Println(err)
	for _, s := range spans.GetSpans() {
		below := ""
		if s.Parent.SpanID() == request.SpanContext().SpanID() {
			below = "  "
		}
		fmt.Println(below + s.Name)
	}
	// Output:
	// <nil>
	//   acquire report
	//   run report
	//   release report
	// GET /report
}

// The keys of this service are no secrets, so its spans name them.
func ExampleWithRedactor() {
	spans := tracetest.NewInMemoryExporter()
	hook, err := tracing.New(
		tracing.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
		tracing.WithRedactor(func(key string) string { return key }),
	)
	if err != nil {
		panic(err)
	}
	g, err := guard.New(memory.New(), guard.WithHook(hook))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	fmt.Println(g.Do(context.Background(), "report:2026-11-21", func(context.Context) error { return nil }))
	for _, attr := range spans.GetSpans()[0].Attributes {
		if attr.Key == "onerun.key" {
			fmt.Println(attr.Value.AsString())
		}
	}
	// Output:
	// <nil>
	// report:2026-11-21
}

// Alerts know from the start how often the report should succeed, and that it has one key. So they
// notice that it has never run, and that two run.
func ExampleWithJob() {
	hook, err := tracing.New(tracing.WithJob(tracing.Job{Name: "report", Every: 24 * time.Hour, Single: true}))
	if err != nil {
		panic(err)
	}
	g, err := guard.New(memory.New(), guard.WithHook(hook), guard.WithName("report"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	fmt.Println(g.Do(context.Background(), "report", func(context.Context) error { return nil }))
	// Output: <nil>
}
