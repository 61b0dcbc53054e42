package tracing_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/logging"
	"github.com/seed-1795987d/onerun/tracing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A telescope is an SDK that keeps all that it receives.
type telescope struct {
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer // of the application
	reader *sdkmetric.ManualReader
	logs   *logBook
	opts   []tracing.Option
	hook   guard.Hook
	log    guard.Hook // to logs
}

func newTelescope(t testing.TB, opts ...tracing.Option) *telescope {
	t.Helper()
	s := &telescope{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), logs: new(logBook)}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	s.tracer = tracers.Tracer("application")
	s.opts = append([]tracing.Option{
		tracing.WithTracerProvider(tracers), tracing.WithMeterProvider(meters),
		tracing.WithRedactor(func(string) string { return "" }),
	}, opts...)
	hook, err := tracing.New(s.opts...)
	require.NoError(t, err)
	s.hook = hook
	s.log, err = logging.New(slog.New(s.logs), logging.WithRedactor(func(string) string { return "" }))
	require.NoError(t, err)
	return s
}

// metrics returns all metrics by name.
func (s *telescope) metrics(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, s.reader.Collect(context.Background(), &all))
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, tracing.ScopeName, scope.Scope.Name)
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// points returns the points of a metric as text: its attributes, and its value, or the count of a
// histogram.
func points(m metricdata.Metrics) (lines []string) {
	add := func(set attribute.Set, value any) {
		lines = append(lines, fmt.Sprintf("%s{%s} %v", m.Name, attributes(set.ToSlice()), value))
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value)
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			value := any("…")
			if !strings.HasSuffix(m.Name, "timestamp") {
				value = p.Value
			}
			add(p.Attributes, value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, "×"+some(p.Count))
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, "×"+some(p.Count))
		}
	default:
		panic(fmt.Sprintf("%T", d))
	}
	slices.Sort(lines)
	return lines
}

// some is a count as text: more than three may be a few more or less, depending on random pauses.
func some[N int64 | uint64](n N) string {
	if n > 3 {
		return "many"
	}
	return fmt.Sprint(n)
}

// process is a label of guardcron, after its tick: either process of a site may win it.
var process = regexp.MustCompile(`Z (one|other)\b`)

// vague are the attributes whose values depend on random pauses.
var vague = []attribute.Key{"onerun.attempts", "onerun.wait_time", "onerun.lease.utilization", "onerun.fence", "onerun.lateness", "onerun.lease.held"}

func attributes(attrs []attribute.KeyValue) string {
	slices.SortFunc(attrs, func(a, b attribute.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	var words []string
	for _, a := range attrs {
		value := fmt.Sprint(a.Value.AsInterface())
		switch {
		case slices.Contains(vague, a.Key):
			value = "…"
		case a.Key == "onerun.holder":
			value = process.ReplaceAllString(value, "Z one")
		case a.Key == "onerun.renewals":
			value = some(a.Value.AsInt64())
		}
		words = append(words, fmt.Sprintf("%s=%s", a.Key, value))
	}
	return strings.Join(words, " ")
}

// tree draws the spans: when they began and how long they took, in seconds, and what they link to
// by the names of those spans.
func (s *telescope) tree() string {
	spans := s.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Truncate(100*time.Millisecond).Compare(b.StartTime.Truncate(100*time.Millisecond)), rank(a.Name)-rank(b.Name))
	})
	var out strings.Builder
	var draw func(parent trace.SpanID, depth int)
	draw = func(parent trace.SpanID, depth int) {
		for _, span := range spans {
			if span.Parent.SpanID() != parent {
				continue
			}
			fmt.Fprintf(&out, "%s%s  [%v +%v]", strings.Repeat("  ", depth), span.Name, about(span.StartTime.Sub(spans[0].StartTime)), about(span.EndTime.Sub(span.StartTime)))
			if span.Status.Code != 0 {
				fmt.Fprintf(&out, " %v %q", span.Status.Code, span.Status.Description)
			}
			fmt.Fprintln(&out)
			if len(span.Attributes) > 0 {
				fmt.Fprintf(&out, "%s    %s\n", strings.Repeat("  ", depth), attributes(span.Attributes))
			}
			for _, l := range span.Links {
				at := slices.IndexFunc(spans, func(o tracetest.SpanStub) bool {
					return o.SpanContext.SpanID() == l.SpanContext.SpanID() && o.SpanContext.TraceID() == l.SpanContext.TraceID()
				})
				to := "nowhere"
				if at >= 0 {
					to = spans[at].Name + " of " + root(spans, spans[at])
				}
				fmt.Fprintf(&out, "%s    → %s: %s\n", strings.Repeat("  ", depth), attributes(l.Attributes), to)
			}
			draw(span.SpanContext.SpanID(), depth+1)
		}
	}
	draw(trace.SpanID{}, 0)
	return out.String()
}

// about rounds a time, so that random pauses do not show.
func about(d time.Duration) time.Duration {
	if d < 4*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(5 * time.Second)
}

// rank orders spans that begin at the same instant.
func rank(name string) int {
	return slices.Index([]string{"acquire", "run", "renew", "release", "skip"}, strings.Fields(name)[0])
}

// root returns the name of the span at the root of span's trace.
func root(spans tracetest.SpanStubs, span tracetest.SpanStub) string {
	for _, s := range spans {
		if s.SpanContext.TraceID() == span.SpanContext.TraceID() && !s.Parent.IsValid() {
			return s.Name
		}
	}
	return "elsewhere"
}

// inventory lists all metrics, and the log records.
func (s *telescope) inventory(t testing.TB) string {
	t.Helper()
	var lines []string
	for _, m := range s.metrics(t) {
		lines = append(lines, points(m)...)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// requireGolden compares what the telescope has seen with a file.
func (s *telescope) requireGolden(t *testing.T, name string) {
	t.Helper()
	got := fmt.Sprintf("SPANS\n%s\nMETRICS\n%s\nLOGS\n%s", s.tree(), s.inventory(t), s.logs.text())
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run with -update and read the difference")
}

// A logBook keeps log records as text, without what depends on random pauses.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logBook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logBook) WithGroup(string) slog.Handler            { return b }

func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	var words []string
	r.Attrs(func(group slog.Attr) bool {
		for _, a := range group.Value.Group() {
			value := a.Value.String()
			if slices.Contains([]string{"fence", "attempts", "waited", "took", "held", "holder_trace_id", "late", "failures", "ends_within"}, a.Key) {
				value = "…"
			}
			if a.Key == "holder" {
				value = process.ReplaceAllString(value, "Z one")
			}
			if a.Key == "renewals" {
				value = some(a.Value.Int64())
			}
			words = append(words, fmt.Sprintf("%s.%s=%s", group.Key, a.Key, value))
		}
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("%v %s: %s", r.Level, r.Message, strings.Join(words, " ")))
	return nil
}

// text returns the lines, each once and sorted: the number of tries depends on random pauses, and
// some lines come from the background.
func (b *logBook) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var once []string
	for _, line := range b.lines {
		if !slices.Contains(once, line) {
			once = append(once, line)
		}
	}
	slices.Sort(once)
	return strings.Join(once, "\n") + "\n"
}
