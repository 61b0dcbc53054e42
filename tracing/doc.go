// Package tracing reports to OpenTelemetry what Guards do. It shows which process ran
// the work, why work was skipped, and whether the work is healthy.
//
//	job := tracing.Job{Name: "nightly-report", Every: 24 * time.Hour, Single: true}
//	hook, err := tracing.New(tracing.WithJob(job))
//	g, err := guard.New(store, guard.WithNamespace("billing"), guard.WithHook(hook))
//
// One hook makes spans and metrics of each call:
//
//	acquire the lease    span "acquire NAME", with the wait
//	run the function     span "run NAME"
//	release the lease    span "release NAME"
//
// The metrics are "onerun.*", listed in deploy/metrics.md. Spans, metrics and the
// records of package logging use the same words for onerun.result and error.type. A key that is
// busy or done is no error. A lease that was lost is one.
//
// # Names and keys
//
// Spans and metrics are grouped by the name of the work ([guard.WithName]). A key is never in a
// metric. Spans show it redacted ([WithRedactor]).
//
// # Cost
//
// The package imports the API of OpenTelemetry and not its SDK. Without a provider it costs next
// to nothing. An error in telemetry never affects the work.
package tracing
