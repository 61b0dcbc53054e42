package tracing

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed-1795987d/onerun/internal/signals"
)

// The bounds of the buckets, in seconds unless the name says otherwise. The defaults of the SDK
// are for milliseconds.
var (
	waitBounds     = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}
	callBounds     = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	runBounds      = []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600}
	latenessBounds = []float64{.001, .005, .01, .02, .05, .1, .5, 1, 5}
	attemptBounds  = []float64{1, 2, 3, 5, 8, 13, 21, 50}
	shareBounds    = []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1}
)

// instruments are the instruments. All of them have the name of the work, except those for
// orphans, for calls to the store, and for adapters.
type instruments struct {
	acquireDuration metric.Float64Histogram
	waitTime        metric.Float64Histogram
	attempts        metric.Int64Histogram
	unknown         metric.Int64Counter
	missedWakeUps   metric.Int64Counter
	leaseDuration   metric.Float64Histogram
	utilization     metric.Float64Histogram
	losses          metric.Int64Counter
	lateness        metric.Float64Histogram
	renewDuration   metric.Float64Histogram
	runDuration     metric.Float64Histogram
	skipped         metric.Int64Counter
	lastSuccess     metric.Float64Gauge
	storeDuration   metric.Float64Histogram
	nodeDuration    metric.Float64Histogram
	outcomes        metric.Int64Counter
	terms           metric.Int64Counter
}

// A maker makes instruments. If a provider refuses one, the maker reports that once to
// otel.Handle, and the instrument measures nothing.
type maker struct{ meter metric.Meter }

func (m maker) histogram(name, unit string, bounds []float64, about string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
	report(err)
	return h
}

func (m maker) counter(name, unit, about string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	report(err)
	return c
}

func (m maker) active(name, unit, about string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	report(err)
	return c
}

func report(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

func newInstruments(meter metric.Meter) instruments {
	m := maker{meter}
	attempts, err := meter.Int64Histogram("onerun.acquire.attempts", metric.WithUnit("{attempt}"), metric.WithExplicitBucketBoundaries(attemptBounds...),
		metric.WithDescription("Counts how often the store was asked for one lease."))
	report(err)
	lastSuccess, err := meter.Float64Gauge("onerun.run.last_success.timestamp", metric.WithUnit("s"),
		metric.WithDescription("Reports when a run last returned nil in this process, in seconds since 1970."))
	report(err)
	return instruments{
		acquireDuration: m.histogram("onerun.acquire.duration", "s", waitBounds, "Measures how long acquires took, including the wait."),
		waitTime:        m.histogram("onerun.acquire.wait_time", "s", waitBounds, "Measures how long acquires that found the key busy waited for it."),
		attempts:        attempts,
		unknown:         m.counter("onerun.acquire.unknown", "{acquire}", "Counts requests for a lease whose outcome is unknown."),
		missedWakeUps:   m.counter("onerun.waiter.missed_wakeups", "{wakeup}", "Counts releases of a key of which its waiter was not notified."),
		leaseDuration:   m.histogram("onerun.lease.duration", "s", runBounds, "Measures how long leases were held."),
		utilization:     m.histogram("onerun.lease.utilization", "1", shareBounds, "Measures the share of the TTL that had passed when a renewal was answered."),
		losses:          m.counter("onerun.lease.losses", "{loss}", "Counts leases that were lost while they were in use."),
		lateness:        m.histogram("onerun.deadline.lateness", "s", latenessBounds, "Measures how long after its lease's deadline a context ended."),
		renewDuration:   m.histogram("onerun.renew.duration", "s", callBounds, "Measures how long renewals took."),
		runDuration:     m.histogram("onerun.run.duration", "s", runBounds, "Measures how long runs took."),
		skipped:         m.counter("onerun.run.skipped", "{run}", "Counts runs that did not take place."),
		lastSuccess:     lastSuccess,
		storeDuration:   m.histogram("onerun.store.operation.duration", "s", callBounds, "Measures how long calls to the store took."),
		nodeDuration:    m.histogram("onerun.node.operation.duration", "s", callBounds, "Measures how long calls to a node of a quorum took."),
		outcomes:        m.counter("onerun.adapter.outcomes", "{outcome}", "Counts requests, tasks and ticks by their result."),
		terms:           m.counter("onerun.leader.terms", "{term}", "Counts the terms for which this process has led."),
	}
}

// observe registers the instruments that are read when metrics are collected. The hook itself
// counts what is active now, so the values are right whenever a provider is set.
func (t *telemetry) observe(meter metric.Meter) {
	m := maker{meter}
	waiters := m.active("onerun.waiter.active", "{waiter}", "Counts the calls that wait for a busy key now.")
	leases := m.active("onerun.lease.active", "{lease}", "Counts the leases that are held now.")
	runs := m.active("onerun.run.active", "{run}", "Counts the functions that run now.")
	cleanUps := m.active("onerun.cleanup.active", "{cleanup}", "Counts the claims that the store may have and that are being released in the background now.")
	interval, err := meter.Float64ObservableGauge("onerun.run.expected_interval", metric.WithUnit("s"),
		metric.WithDescription("Reports how often the work should succeed, as declared."))
	report(err)
	_, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		t.declare(ctx)
		o.ObserveInt64(cleanUps, t.orphans.Load())
		t.names.each(func(w *work) {
			set := w.with(labels{}).observe
			o.ObserveInt64(waiters, w.waiting.Load(), set...)
			o.ObserveInt64(runs, w.runs.Load(), set...)
			o.ObserveInt64(leases, w.leases.Load(), w.with(w.maxHolders()).observe...)
			if w.job.Every > 0 {
				o.ObserveFloat64(interval, w.job.Every.Seconds(), set...)
			}
		})
		return nil
	}, waiters, leases, runs, cleanUps, interval)
	report(err)
}

// declare makes the counters of declared work begin at zero, because Prometheus sees no increase
// in a series that first appears at one. It does so when metrics are collected for the first time,
// because counts before there is a provider are lost.
func (t *telemetry) declare(ctx context.Context) {
	t.declared.Do(func() {
		for _, job := range t.set.jobs {
			w := t.names.of(job.Name)
			for _, reason := range lossReasons {
				t.on.losses.Add(ctx, 0, w.with(labels{key: keyLossReason, value: string(reason)}).add...)
			}
			for _, reason := range []string{signals.Busy, signals.Done} {
				t.on.skipped.Add(ctx, 0, w.with(labels{key: keySkipReason, value: reason}).add...)
			}
		}
	})
}

// enabled reports whether the SDK keeps what an instrument measures. Before v1.40 of the API,
// instruments have no method for it: they all count as enabled.
func enabled(ctx context.Context, instrument any) bool {
	i, ok := instrument.(interface{ Enabled(context.Context) bool })
	return !ok || i.Enabled(ctx)
}

// seconds records a duration if the instrument is enabled.
func seconds(ctx context.Context, h metric.Float64Histogram, v float64, w *work, l labels) {
	if enabled(ctx, h) {
		h.Record(ctx, v, w.with(l).record...)
	}
}

func count(ctx context.Context, c metric.Int64Counter, w *work, l labels) {
	if enabled(ctx, c) {
		c.Add(ctx, 1, w.with(l).add...)
	}
}
