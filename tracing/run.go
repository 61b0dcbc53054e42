package tracing

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/signals"
)

// runContext is the context of a run.
type runContext struct {
	context.Context
	span trace.Span
}

type runKey struct{}

// Value returns the context itself for runKey.
func (c *runContext) Value(key any) any {
	if key == (runKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (t *telemetry) runStart(ctx context.Context, e guard.RunEvent) context.Context {
	if counts(&e) {
		w := t.names.of(e.Name)
		w.runs.Add(1)
		if e.Purpose == guard.PurposeCandidate {
			w.election.begin(&e.Event)
			count(ctx, t.on.terms, w, labels{})
		}
	}
	if !t.traces() {
		return ctx
	}
	ctx, span := t.startOf(ctx, &e.LeaseEvent, "run")
	return &runContext{Context: ctx, span: span}
}

// counts reports whether metrics count a run. A run that joins a lease is a part of another run.
func counts(e *guard.RunEvent) bool { return !e.Joined && e.Purpose != guard.PurposeAuxiliary }

func (t *telemetry) runEnd(ctx context.Context, e guard.RunEndEvent) {
	out := signals.OutcomeOfRun(&e)
	ended := e.Start.Add(e.Duration)
	if counts(&e.RunEvent) {
		w := t.names.of(e.Name)
		w.runs.Add(-1)
		if e.Purpose == guard.PurposeCandidate {
			w.election.end(&e.Event)
		}
		seconds(ctx, t.on.runDuration, e.Duration.Seconds(), w, labels{key: keyResult, value: out.Result, errorType: out.ErrorType})
		if out.Result == signals.OK && enabled(ctx, t.on.lastSuccess) {
			t.on.lastSuccess.Record(ctx, float64(ended.UnixMilli())/1000, w.with(labels{}).record...)
		}
	}
	if r, ok := ctx.Value(runKey{}).(*runContext); ok {
		t.endRun(r.span, &e, out, ended)
	}
}

func (t *telemetry) endRun(span trace.Span, e *guard.RunEndEvent, out signals.Outcome, at time.Time) {
	if !span.IsRecording() {
		span.End()
		return
	}
	attrs := append(t.common(&e.Event), keyResult.String(out.Result), keyFence.Int64(int64(e.Fence)))
	if e.Renewals > 0 {
		attrs = append(attrs, keyRenewals.Int(e.Renewals), keyUtilization.Float64(share(e.MaxUsed, e.TTL)))
	}
	if e.Joined {
		attrs = append(attrs, keyJoined.Bool(true))
	}
	var lost *guard.LostError
	if out.Result == signals.Lost && errors.As(e.Err, &lost) {
		attrs = append(attrs, keyLossReason.String(string(lost.Reason)), keyLateness.Float64(lost.Late.Seconds()))
		if lost.Broken != "" {
			attrs = append(attrs, keyBroken.String(t.redact.Scrub(lost.Broken, e.Key, e.Owner)))
		}
	}
	end(span, attrs, out, at)
}

// share returns the share of the TTL that had passed at a renewal, from 0 to 1.
func share(used, ttl time.Duration) float64 { return used.Seconds() / ttl.Seconds() }
