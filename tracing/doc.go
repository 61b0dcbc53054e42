// Package tracing tells OpenTelemetry, and log/slog, what Guards do: who ran it, why was it
// skipped, is it healthy.
//
//	job := tracing.Job{Name: "nightly-report", Every: 24 * time.Hour, Single: true}
//	hook, err := tracing.New(tracing.WithLogger(slog.Default()), tracing.WithJob(job))
//	g, err := guard.New(store, guard.WithHook(hook))
//
// One hook makes spans ("acquire NAME", with the waiting, "run NAME" and "release NAME"), metrics
// ("onerun.*", listed in deploy/metrics.md) and log records, and they agree with each other:
// onerun.result and error.type are the same words in all three. A key that is busy or done is no
// error; a lease that was lost is one. Spans go by the name of the work (guard.WithName) and
// metrics by nothing else: a key is never in a metric, and elsewhere only redacted.
//
// It imports the API of OpenTelemetry and not its SDK: without a provider it costs next to
// nothing. What goes wrong in telemetry changes nothing for the work.
package tracing
