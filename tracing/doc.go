// Package tracing reports to OpenTelemetry and log/slog what Guards do: which process ran the
// work, why was it skipped, is it healthy?
//
//	job := tracing.Job{Name: "nightly-report", Every: 24 * time.Hour, Single: true}
//	hook, err := tracing.New(tracing.WithLogger(slog.Default()), tracing.WithJob(job))
//	g, err := guard.New(store, guard.WithHook(hook))
//
// One hook makes spans, metrics and log records. The spans are "acquire NAME" (with the wait),
// "run NAME" and "release NAME". The metrics are "onerun.*", listed in deploy/metrics.md. All
// three use the same words for onerun.result and error.type. A key that is busy or done is no
// error; a lease that was lost is one. Spans and metrics are grouped by the name of the work
// (guard.WithName). A key is never in a metric, and it is redacted in spans and logs.
//
// The package imports the API of OpenTelemetry and not its SDK. Without a provider it costs next
// to nothing. An error in telemetry never affects the work.
package tracing
