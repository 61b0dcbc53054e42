package tracing_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/metricspage"
	"github.com/seed-1795987d/onerun/tracing"
)

// everything plays what makes each instrument measure something.
func everything(t *testing.T, s *site) {
	t.Helper()
	nobody := func(context.Context, int, driver.Claim) (driver.Answer, error) {
		return driver.Answer{}, guardtest.Fail(driver.KindAuth)
	}
	require.NoError(t, s.one.Do(t.Context(), "k", sleeps(8*time.Second)))
	go func() { _ = s.one.Do(t.Context(), "k", sleeps(3*time.Second)) }()
	time.Sleep(time.Second)
	require.NoError(t, s.other.Do(t.Context(), "k", nothing, guard.WithWait(time.Minute)))
	require.ErrorIs(t, s.one.Do(t.Context(), "lost", func(ctx context.Context) error { <-ctx.Done(); return nil }, guard.WithoutRenewal()), guard.ErrLost)
	require.NoError(t, s.one.Do(t.Context(), "once", nothing, guard.WithOnce(time.Hour)))
	require.ErrorIs(t, s.one.Do(t.Context(), "once", nothing, guard.WithOnce(time.Hour)), guard.ErrDone)
	require.NoError(t, s.one.Lead(t.Context(), "leader", func(context.Context) error { return guard.ErrStopLeading }))
	s.one.Adapter().Report(t.Context(), guard.Outcome{Adapter: "http", Result: "ran"})
	s.hook.Call(t.Context(), guard.CallEvent{Op: driver.OpAcquire, Node: "a:1", Err: guardtest.Fail(driver.KindTimeout)})
	s.hook.Call(t.Context(), guard.CallEvent{Op: driver.OpAcquire, Node: "a:1"})
	s.hook.AcquireEnd(t.Context(), guard.AcquireEvent{
		Event: guard.Event{Name: "report"}, Waits: true, Grant: guard.GrantMissedWakeUp,
	})
	synctest.Wait()
	s.store.OnAcquire = nobody
	require.ErrorIs(t, s.one.Do(t.Context(), "k", nothing), guard.ErrStore)
	time.Sleep(time.Minute)
}

func TestMetrics_areThoseOfThePageForOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newTelescope(t, tracing.WithJob(tracing.Job{Name: "report", Every: time.Hour, Single: true})), guard.WithName("report"))
		everything(t, s)
		s.close(t)
		found := s.metrics(t)
		for _, want := range metricspage.Read(t, "../deploy/metrics.md") {
			m, ok := found[want.Name]
			require.True(t, ok, want.Name)
			delete(found, want.Name)
			require.Equal(t, want.Unit, m.Unit, want.Name)
			require.Regexp(t, `^(Measures|Counts|Reports) .*\.$`, m.Description, "%s: it is a sentence", want.Name)
			kind, bounds := shape(m)
			require.Equal(t, want.Kind, kind, want.Name)
			require.Equal(t, strings.Join(want.Buckets, " "), bounds, want.Name)
			for _, line := range points(m) {
				_, set, _ := strings.Cut(line, "{")
				set, _, _ = strings.Cut(set, "}")
				for _, attr := range strings.Fields(set) {
					key, value, _ := strings.Cut(attr, "=")
					values, ok := want.Labels[strings.ReplaceAll(key, ".", "_")]
					require.True(t, ok, "%s has %s", want.Name, key)
					require.True(t, len(values) == 0 || slices.Contains(values, value), "%s has %s", want.Name, attr)
				}
			}
		}
		require.Empty(t, found, "not on the page")
	})
}

// shape returns the kind of a metric in the words of the page, and the bounds of its buckets.
func shape(m metricdata.Metrics) (kind, bounds string) {
	list := func(bounds []float64) string {
		var words []string
		for _, b := range bounds {
			words = append(words, strings.TrimPrefix(strconv.FormatFloat(b, 'f', -1, 64), "0"))
		}
		return strings.Join(words, " ")
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		if d.IsMonotonic {
			return "counter", ""
		}
		return "updowncounter", ""
	case metricdata.Sum[float64]:
		return "counter", ""
	case metricdata.Gauge[float64], metricdata.Gauge[int64]:
		return "gauge", ""
	case metricdata.Histogram[float64]:
		return "histogram", list(d.DataPoints[0].Bounds)
	case metricdata.Histogram[int64]:
		return "histogram", list(d.DataPoints[0].Bounds)
	}
	return fmt.Sprintf("%T", m.Data), ""
}

// The run of DoAll is reported under the last key, whichever key was lost.
func TestMetrics_countARunWithALostKeyAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newTelescope(t), guard.WithName("report"))
		untilLost := func(ctx context.Context) error { <-ctx.Done(); return nil }
		require.ErrorIs(t, s.one.DoAll(t.Context(), []string{"a", "b"}, untilLost, guard.WithoutRenewal()), guard.ErrLost)
		ofAnother := func(ctx context.Context) error {
			return s.one.Do(ctx, "c", untilLost, guard.WithoutRenewal(), guard.WithName("inner"))
		}
		require.ErrorIs(t, s.one.Do(t.Context(), "a", ofAnother), guard.ErrLost)
		s.close(t)
		require.Equal(t, []string{
			"onerun.run.duration{error.type=_OTHER onerun.name=report onerun.result=error} ×1",
			"onerun.run.duration{error.type=lost_expired onerun.name=inner onerun.result=lost} ×1",
			"onerun.run.duration{error.type=lost_expired onerun.name=report onerun.result=lost} ×1",
		}, points(s.metrics(t)["onerun.run.duration"]))
	})
}

// The budget: what one instrument may have for each name, and all of them together.
const (
	maxSeriesOfOne = 12
	maxSeriesOfAll = 60
)

func TestMetrics_keepToTheirBudgetWithThousandsOfKeysAndNames(t *testing.T) {
	keepToTheirBudget(t, 500)
}

func TestLong_metricsKeepToTheirBudgetWithAHundredThousandKeysAndNames(t *testing.T) {
	leftout.IfShort(t)
	keepToTheirBudget(t, 10_000)
}

// keepToTheirBudget has ten parts of as many keys and names each.
func keepToTheirBudget(t *testing.T, each int) {
	t.Helper()
	// spans and logs are no subject of it, and many
	s := &telescope{reader: sdkmetric.NewManualReader()}
	hook, err := tracing.New(tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))),
		tracing.WithMaxNames(20), tracing.WithJob(tracing.Job{Name: "declared"}))
	require.NoError(t, err)
	g, err := guard.New(memory.New(), guard.WithHook(hook))
	require.NoError(t, err)
	var all sync.WaitGroup
	for part := range 10 {
		all.Go(func() {
			for i := range each {
				n := strconv.Itoa(part*each + i)
				_ = g.Do(t.Context(), "key-"+n, nothing, guard.WithName("name-"+n))
			}
		})
	}
	all.Wait()
	require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithName("declared")))
	for i := range 1000 { // and what adapters of somebody else's say
		g.Adapter().Report(t.Context(), guard.Outcome{Name: "declared", Adapter: "own", Result: "result-" + strconv.Itoa(i)})
	}
	require.NoError(t, g.Close(t.Context()))
	const names = 20 + 1 // and those beyond
	series := 0
	for name, m := range s.metrics(t) {
		lines := points(m)
		series += len(lines)
		if name == "onerun.adapter.outcomes" {
			require.Less(t, len(lines), 300)
			continue
		}
		require.LessOrEqual(t, len(lines), names*maxSeriesOfOne, name)
		for _, line := range lines {
			require.NotContains(t, line, "key-")
		}
	}
	require.LessOrEqual(t, series, names*maxSeriesOfAll)
	runs := points(s.metrics(t)["onerun.run.duration"])
	require.Contains(t, strings.Join(runs, "\n"), "onerun.name=_OTHER")
	require.Contains(t, strings.Join(runs, "\n"), "onerun.name=declared onerun.result=ok} ×1")
	require.Len(t, runs, names)
}

// Nodes, operations and kinds of errors make more sets than a metric distinguishes.
func TestMetrics_ofNodesKeepTheNodeBeyondTheirBudget(t *testing.T) {
	s := newTelescope(t)
	nodes := 0
	for _, op := range []driver.Op{driver.OpAcquire, driver.OpRenew, driver.OpRelease, driver.OpCleanUp, driver.OpLedger, driver.OpInspect} {
		for _, kind := range []driver.StoreErrorKind{
			driver.KindOther, driver.KindTimeout, driver.KindCanceled, driver.KindConnection, driver.KindPoolExhausted, driver.KindLimit,
			driver.KindOOM, driver.KindReadOnly, driver.KindLoading, driver.KindRestarted, driver.KindMoved, driver.KindAuth,
		} {
			for node := range 5 {
				s.hook.Call(t.Context(), guard.CallEvent{Op: op, Node: fmt.Sprintf("node-%d:1", node), Err: guardtest.Fail(kind)})
				nodes++
			}
		}
	}
	m, ok := s.metrics(t)["onerun.node.operation.duration"].Data.(metricdata.Histogram[float64])
	require.True(t, ok)
	counted := 0
	for _, point := range m.DataPoints {
		node, ok := point.Attributes.Value("onerun.node")
		require.True(t, ok, "%v", point.Attributes.ToSlice())
		require.Regexp(t, `^node-\d:1$`, node.AsString())
		_, named := point.Attributes.Value("onerun.name")
		require.False(t, named)
		counted += int(point.Count) //nolint:gosec // few
	}
	require.Equal(t, nodes, counted)
}

func TestMetrics_ofDeclaredJobsBeginAtZero(t *testing.T) {
	s := newTelescope(t, tracing.WithJob(tracing.Job{Name: "nightly", Every: 24 * time.Hour, Single: true}, tracing.Job{Name: "other"}))
	found := s.metrics(t)
	require.Equal(t, []string{"onerun.run.expected_interval{onerun.name=nightly} 86400"}, points(found["onerun.run.expected_interval"]))
	require.Equal(t, []string{"onerun.lease.active{onerun.max_holders=1 onerun.name=nightly} 0", "onerun.lease.active{onerun.name=other} 0"}, points(found["onerun.lease.active"]))
	losses := points(found["onerun.lease.losses"])
	require.Len(t, losses, 10)
	require.Contains(t, losses, "onerun.lease.losses{onerun.loss.reason=suspended onerun.name=nightly} 0")
	require.Contains(t, points(found["onerun.run.skipped"]), "onerun.run.skipped{onerun.name=other onerun.skip.reason=busy} 0")
	require.NotContains(t, found, "onerun.run.last_success.timestamp", "it has not succeeded")
}

// globals is for what a process can do once: to set the global providers for the first time.
var globals sync.Once

func TestMetrics_areRightAlsoWhenTheGlobalProvidersAreSetLater(t *testing.T) {
	globals.Do(func() { requireRightWithLateGlobals(t) })
}

func requireRightWithLateGlobals(t *testing.T) {
	hook, err := tracing.New(tracing.WithJob(tracing.Job{Name: "nightly"}))
	require.NoError(t, err)
	g, err := guard.New(memory.New(), guard.WithName("nightly"), guard.WithHook(hook))
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "k")
	require.NoError(t, err)

	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	s := &telescope{reader: reader}
	require.Contains(t, points(s.metrics(t)["onerun.lease.active"]), "onerun.lease.active{onerun.name=nightly} 0", "one that was there before does not count")
	second, err := g.Acquire(t.Context(), "k2")
	require.NoError(t, err)
	require.Contains(t, points(s.metrics(t)["onerun.lease.active"]), "onerun.lease.active{onerun.name=nightly} 1")
	require.NoError(t, second.Release(t.Context()))
	require.Len(t, points(s.metrics(t)["onerun.lease.losses"]), 5)
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Do(t.Context(), "k", nothing))
	require.NoError(t, g.Close(t.Context()))
	require.Contains(t, points(s.metrics(t)["onerun.lease.active"]), "onerun.lease.active{onerun.name=nightly} 0")
	var names []string
	for _, span := range spans.GetSpans() {
		names = append(names, span.Name)
	}
	require.Equal(t, []string{"acquire nightly", "release nightly", "acquire nightly", "run nightly", "release nightly"}, names)
}

func TestMetrics_carryTheTraceOfTheRun(t *testing.T) {
	t.Setenv("OTEL_GO_X_EXEMPLAR", "true") // without it, SDKs before v1.31 have no exemplars
	s := newTelescope(t)
	g, err := guard.New(memory.New(), guard.WithName("report"), guard.WithHook(s.hook))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "k", nothing))
	require.NoError(t, g.Close(t.Context()))
	var trace []byte
	for _, span := range s.spans.GetSpans() {
		if span.Name == "run report" {
			id := span.SpanContext.SpanID()
			trace = id[:]
		}
	}
	d := s.metrics(t)["onerun.run.duration"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, d, 1)
	require.Len(t, d[0].Exemplars, 1)
	require.Equal(t, trace, d[0].Exemplars[0].SpanID)
}

func TestMetrics_ofAProviderThatRefusesThemDoNotStopTheWork(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	require.NoError(t, provider.Shutdown(t.Context()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { fmt.Fprintln(io.Discard, err) }))
	hook, err := tracing.New(tracing.WithMeterProvider(provider))
	require.NoError(t, err)
	g, err := guard.New(memory.New(), guard.WithHook(hook))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "k", nothing))
	require.NoError(t, g.Close(t.Context()))
}
