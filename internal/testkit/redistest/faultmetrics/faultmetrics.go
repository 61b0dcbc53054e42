// Package faultmetrics looks at a fault as an operator does: by the metrics of package tracing.
//
//	seen := faultmetrics.Watch(t, table)
//	g, err := guard.New(store, guard.WithHook(seen.Hook))
//
// A fault that the metrics do not show is a bug. It counts what package tracing counts, and a test
// there checks that. It does not use OpenTelemetry: the imports of the stores' tests would be in
// the go.sum of every module that imports the stores. Only tests import it.
package faultmetrics

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Metrics are those of the Guards of one test that tell of trouble.
type Metrics struct {
	Hook guard.Hook

	mu     sync.Mutex
	counts map[string]int
}

// New returns metrics that nothing is asked of.
func New() *Metrics {
	m := &Metrics{counts: map[string]int{}}
	m.Hook = guard.Hook{AcquireEnd: m.acquireEnd, Call: m.call, Renew: m.renew, Loss: m.loss}
	return m
}

var (
	mu      sync.Mutex
	watched = map[string]*Metrics{}
)

// Watch returns the metrics of the test, the same at each call. When the test has ended, and its
// Guards are closed, it fails unless they show what the table says of the longest name in it with
// which that of the test begins: a regular expression for a line of Lines, or "" for faults that
// are nobody's trouble. A test that is named for a fault (TestFault…) has to be in the table; of
// others nothing is asked.
func Watch(t testing.TB, table map[string]string) *Metrics {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if m := watched[t.Name()]; m != nil {
		return m
	}
	m := New()
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
	lines := m.Lines()
	switch at := slices.IndexFunc(lines, regexp.MustCompile(want).MatchString); {
	case want == "":
		t.Logf("fault report: %s: invisible, as it should be", t.Name())
	case at < 0:
		t.Errorf("the metrics do not show %s\nwanted: %s\nthere are:\n%s", t.Name(), want, strings.Join(lines, "\n"))
	default:
		t.Logf("fault report: %s: %s", t.Name(), lines[at])
	}
}

// Lines returns what went wrong, by the metrics that count it and in their words:
// "name{attribute=value,…} how often".
func (m *Metrics) Lines() (lines []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for series, n := range m.counts {
		lines = append(lines, fmt.Sprint(series, " ", n))
	}
	slices.Sort(lines)
	return lines
}

func (m *Metrics) count(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[fmt.Sprintf(format, args...)]++
}

func (m *Metrics) acquireEnd(_ context.Context, e guard.AcquireEvent) {
	if e.Grant == guard.GrantMissedWakeUp && e.Purpose != guard.PurposeAuxiliary {
		m.count("onerun.waiter.missed_wakeups{}")
	}
}

func (m *Metrics) call(_ context.Context, e guard.CallEvent) {
	kind := errorType(e.Err)
	switch {
	case kind == "":
	case e.Node != "":
		m.count("onerun.node.operation.duration{error.type=%s,onerun.node=%s,onerun.operation=%s}", kind, e.Node, e.Op)
	default:
		m.count("onerun.store.operation.duration{error.type=%s,onerun.operation=%s}", kind, e.Op)
		if e.Op == driver.OpAcquire {
			m.count("onerun.acquire.unknown{error.type=%s}", kind)
		}
	}
}

func (m *Metrics) renew(_ context.Context, e guard.RenewEvent) {
	kind := errorType(e.Err)
	if kind == "" {
		return
	}
	if errors.Is(e.Err, guard.ErrLost) {
		m.count("onerun.renew.duration{error.type=%s,onerun.result=lost}", kind)
		return
	}
	m.count("onerun.renew.duration{error.type=%s,onerun.result=error}", kind)
	m.count("onerun.store.operation.duration{error.type=%s,onerun.operation=renew}", kind)
}

func (m *Metrics) loss(_ context.Context, e guard.LossEvent) {
	m.count("onerun.lease.losses{onerun.loss.reason=%s}", e.Err.Reason)
}

// errorType returns the word for an error of a store, or for a loss.
func errorType(err error) string {
	var lost *guard.LostError
	var store *guard.StoreError
	switch {
	case errors.As(err, &lost):
		return "lost_" + string(lost.Reason)
	case errors.As(err, &store):
		return string(store.Kind)
	}
	return ""
}
