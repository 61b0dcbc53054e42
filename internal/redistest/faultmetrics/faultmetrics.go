// Package faultmetrics looks at a fault as an operator does: by the metrics of package tracing.
//
//	seen := faultmetrics.Watch(t, table)
//	g, err := guard.New(store, guard.WithHook(seen.Hook))
//
// A fault that the metrics do not show is a bug. Only tests import it.
package faultmetrics

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/tracing"
)

// Metrics are those of the Guards of one test.
type Metrics struct {
	Hook   guard.Hook
	reader *sdkmetric.ManualReader
}

var (
	mu      sync.Mutex
	watched = map[string]*Metrics{}
)

// Watch returns the metrics of the test, the same at each call. When the test has ended, and its Guards are closed, it fails unless they show what the
// table says of the longest name in it with which that of the test begins: a regular expression for a line of Lines, or "" for faults that are nobody's trouble. A test that is named for
// a fault (TestFault…) has to be in the table; of others nothing is asked.
func Watch(t testing.TB, table map[string]string) *Metrics {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if m := watched[t.Name()]; m != nil {
		return m
	}
	reader := sdkmetric.NewManualReader()
	hook, err := tracing.New(tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	if err != nil {
		t.Fatalf("faultmetrics: %v", err)
	}
	m := &Metrics{Hook: hook, reader: reader}
	watched[t.Name()] = m
	t.Cleanup(func() {
		mu.Lock()
		delete(watched, t.Name())
		mu.Unlock()
		m.requireShown(t, table)
	})
	return m
}

func (m *Metrics) requireShown(t testing.TB, table map[string]string) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestFault") || t.Failed() {
		return
	}
	found, want := "", ""
	for name, pattern := range table {
		if strings.HasPrefix(t.Name(), name) && len(name) > len(found) {
			found, want = name, pattern
		}
	}
	if found == "" {
		t.Errorf("the table does not say how %s shows in metrics", t.Name())
		return
	}
	lines := m.Lines(t)
	switch at := slices.IndexFunc(lines, regexp.MustCompile(want).MatchString); {
	case want == "":
		t.Logf("fault report: %s: invisible, as it should be", t.Name())
	case at < 0:
		t.Errorf("the metrics do not show %s\nwanted: %s\nthere are:\n%s", t.Name(), want, strings.Join(lines, "\n"))
	default:
		t.Logf("fault report: %s: %s", t.Name(), lines[at])
	}
}

// Lines returns the counters, and how often histograms were told of something, each as "name{attribute=value …} number", but for those that are zero.
func (m *Metrics) Lines(t testing.TB) (lines []string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		t.Errorf("faultmetrics: %v", err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			switch d := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					if p.Value != 0 {
						lines = append(lines, fmt.Sprintf("%s{%s} %d", metric.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value))
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d", metric.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Count))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}
