package tracing

import (
	"context"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/signals"
)

// ScopeName is the instrumentation scope of all spans and metrics.
const ScopeName = "github.com/seed-1795987d/onerun/tracing"

// New returns the hook for guard.WithHook. Give one hook to all Guards of a process: it counts
// their sum. A setting that cannot work is a *guard.SettingError that names it.
//
// The caller shuts the providers down, after it has closed the Guards. A global provider that is
// set later counts from the next acquire on.
func New(opts ...Option) (guard.Hook, error) {
	set, err := newSettings(opts)
	if err != nil {
		return guard.Hook{}, err
	}
	t := newTelemetry(set)
	return guard.Hook{
		Off:          t.off,
		Label:        t.label,
		AcquireStart: t.acquireStart,
		Wait:         t.wait,
		AcquireEnd:   t.acquireEnd,
		Skip:         t.skip,
		RunStart:     t.runStart,
		RunEnd:       t.runEnd,
		Renew:        t.renew,
		Loss:         t.loss,
		Release:      t.release,
		Call:         t.call,
		Orphan:       t.orphan,
		Background:   t.background,
		Outcome:      t.outcome,
	}, nil
}

// telemetry is the state of one hook.
type telemetry struct {
	set    settings
	tracer trace.Tracer
	unset  unset
	on     instruments
	names  *names
	redact *signals.Redactor
	plain  *work // for what is counted without a name

	orphans  atomic.Int64
	declared sync.Once
}

func newTelemetry(set settings) *telemetry {
	tracers, meters := set.providers()
	t := &telemetry{
		set:    set,
		tracer: tracers.Tracer(ScopeName, trace.WithInstrumentationVersion(version())),
		names:  newNames(set.jobs, set.maxNames),
		redact: signals.NewRedactor(set.redact),
		plain:  newWork(Job{}),
	}
	if set.tracers == nil && isPlaceholder(tracers) {
		t.unset.tracers = tracers
	}
	if set.meters == nil && isPlaceholder(meters) {
		t.unset.meters = meters
	}
	meter := meters.Meter(ScopeName, metric.WithInstrumentationVersion(version()))
	t.on = newInstruments(meter)
	t.observe(meter)
	t.observeElections(meter)
	return t
}

// unset are the global providers as long as none was set, or nil.
type unset struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
}

// off reports whether nothing receives spans or metrics.
func (t *telemetry) off() bool {
	return !t.traces() && t.unset.meters != nil && otel.GetMeterProvider() == t.unset.meters
}

// isPlaceholder reports whether p is the placeholder for a global provider that was not set yet.
// Its tracers make spans that record nothing, and that cost three allocations each.
func isPlaceholder(p any) bool {
	of := reflect.TypeOf(p)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of.PkgPath() == "go.opentelemetry.io/otel/internal/global"
}

// traces reports whether something receives spans.
func (t *telemetry) traces() bool {
	return t.unset.tracers == nil || otel.GetTracerProvider() != t.unset.tracers
}

// version returns the version of the module in this program.
func version() string {
	const module = "github.com/seed-1795987d/onerun"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range append(info.Deps, &info.Main) {
		if dep.Path == module && dep.Version != "(devel)" {
			return dep.Version
		}
	}
	return ""
}

// background keeps instrumentation of the store's client from making a trace of each renewal.
// Calls that no caller waits for get a parent that was not sampled.
func (t *telemetry) background(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, unsampled)
}

// unsampled is a span that was not sampled.
var unsampled = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{'o', 'n', 'e', 'r', 'u', 'n'}, SpanID: trace.SpanID{'o', 'n', 'e', 'r', 'u', 'n'},
})

func (t *telemetry) label(ctx context.Context) string {
	if t.set.noLinks || !t.traces() {
		return ""
	}
	return t.labelOf(ctx)
}
