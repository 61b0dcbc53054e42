// Observability runs a job whose spans, metrics and log records all have a destination.
//
//	go run ./examples/redis            a Redis, if you have none
//	go run ./examples/observability    in a second terminal; it prints spans and log records
//	curl -s 127.0.0.1:9464/metrics     in a third
package main

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/logging"
	"github.com/seed-1795987d/onerun/tracing"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	listen := flag.String("metrics", "127.0.0.1:9464", "where Prometheus finds the metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	spans := must(stdouttrace.New()) // in production, otlptracegrpc.New for example
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(must(otelprometheus.New())))
	traces := must(tracing.New(tracing.WithTracerProvider(tracers), tracing.WithMeterProvider(meters),
		tracing.WithJob(tracing.Job{Name: "nightly-report", Single: true})))
	logs := must(logging.New(slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))))

	rdb := redis.NewClient(&redis.Options{Addr: *addr})
	g := must(guard.New(single.New(rdb), guard.WithNamespace("billing"), guard.WithHook(traces), guard.WithHook(logs)))
	err := g.Do(ctx, "report", func(context.Context) error { return nil }, guard.WithName("nightly-report"))
	slog.Info("the job has ended", "error", err)

	// OpenMetrics has exemplars: the trace of one measurement in each bucket.
	http.Handle("/metrics", promhttp.HandlerFor(prometheus.DefaultGatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	go func() { slog.Error(http.ListenAndServe(*listen, nil).Error()) }()
	<-ctx.Done()

	end := context.WithoutCancel(ctx)
	_ = g.Close(end) // before the providers, so that they get its last spans
	_, _ = tracers.Shutdown(end), meters.Shutdown(end)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
