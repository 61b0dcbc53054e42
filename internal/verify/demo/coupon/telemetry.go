//go:build trace

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/felixge/httpsnoop"
	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/logging"
	"github.com/seed-1795987d/onerun/tracing"
)

// canTrace is true in a program that has OpenTelemetry and Prometheus.
const canTrace = true

// telemetry is what a server tells of itself. Without -trace it is zero, and tells nothing.
type telemetry struct {
	hook   guard.Hook   // traces and metrics of the Guard
	log    guard.Hook   // its log
	tracer trace.Tracer // for requests, or nil

	tracers *sdktrace.TracerProvider
	meters  *sdkmetric.MeterProvider
	web     *http.Server
	served  chan error
}

// watch makes the server's telemetry, and says where its metrics are.
func (s *server) watch() (telemetry, error) {
	listener, err := net.Listen("tcp", s.Telemetry.Metrics)
	if err != nil {
		return telemetry{}, fmt.Errorf("-metrics: %w", err)
	}
	level := slog.LevelInfo
	if s.Telemetry.Verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("server", s.Name)
	s.parent.Say("has its metrics at http://%s/metrics", listener.Addr())
	return newTelemetry(s.Name, s.parent.Out(), logger, listener)
}

// newTelemetry writes spans as lines of JSON, and serves metrics. In a program of your own the
// exporters are others; the call of tracing.New stays. The caller must call close.
func newTelemetry(name string, spans io.Writer, logger *slog.Logger, listener net.Listener) (t telemetry, err error) {
	toLines, err := stdouttrace.New(stdouttrace.WithWriter(spans))
	if err != nil {
		return t, err
	}
	who := resource.NewSchemaless(attribute.String("service.name", "coupon"), attribute.String("service.instance.id", name))
	// A queue that is long enough for all of the crowd, as what does not fit in is dropped; and
	// little is left to write in the end, as there is little time.
	t.tracers = sdktrace.NewTracerProvider(sdktrace.WithResource(who),
		sdktrace.WithBatcher(toLines, sdktrace.WithMaxQueueSize(1<<15), sdktrace.WithBatchTimeout(100*time.Millisecond)))
	t.tracer = t.tracers.Tracer("coupon")

	registry := prom.NewRegistry()
	toPrometheus, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		return t, err
	}
	t.meters = sdkmetric.NewMeterProvider(sdkmetric.WithResource(who), sdkmetric.WithReader(toPrometheus))

	t.hook, err = tracing.New(
		tracing.WithTracerProvider(t.tracers),
		tracing.WithMeterProvider(t.meters),
		// Known beforehand, so that their series begin at zero. All servers together hold the
		// stock once at most.
		tracing.WithJob(tracing.Job{Name: nameClaim}, tracing.Job{Name: nameStock, Single: true}),
	)
	if err != nil {
		return t, err
	}
	if t.log, err = logging.New(logger); err != nil {
		return t, err
	}
	mux := http.NewServeMux()
	// OpenMetrics has the exemplars: the trace of one request among those that a bucket counts.
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.web, t.served = &http.Server{Handler: mux}, make(chan error, 1)
	go func() { t.served <- t.web.Serve(listener) }()
	return t, nil
}

// close exports what is left, and ends everything. It goes after the Guard's Close.
func (t telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	err := errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx), t.web.Shutdown(ctx))
	if served := <-t.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// traced makes a span of each request, including its wait in the queue. otelhttp would do so too,
// but would also record the path of the request, which contains the user here.
func (t telemetry) traced(next http.Handler) http.Handler {
	if t.tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := t.tracer.Start(r.Context(), r.Pattern, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method)))
		defer span.End()
		status := httpsnoop.CaptureMetrics(next, w, r.WithContext(ctx)).Code
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}
