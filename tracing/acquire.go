package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
)

// acquireContext is the context of an acquire.
type acquireContext struct {
	context.Context
	span trace.Span // nil if nothing is traced
	long *longWait  // nil if it does not wait, or nothing is logged
}

type acquireKey struct{}

// Value returns the context itself for acquireKey.
func (c *acquireContext) Value(key any) any {
	if key == (acquireKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (t *telemetry) acquireStart(ctx context.Context, e guard.Event) context.Context {
	traced := !e.Auxiliary && t.traces()
	if !traced && t.log == nil {
		return ctx
	}
	a := &acquireContext{Context: ctx}
	if traced {
		a.Context, a.span = t.start(ctx, &e, "acquire")
	}
	return a
}

func (t *telemetry) wait(ctx context.Context, e guard.Event) {
	if e.Auxiliary {
		return
	}
	t.names.of(e.Name).waiting.Add(1)
	if a, ok := ctx.Value(acquireKey{}).(*acquireContext); ok && t.log != nil {
		a.long = t.log.watch(ctx, &e)
	}
}

func (t *telemetry) acquireEnd(ctx context.Context, e guard.Event) {
	w := t.names.of(e.Name)
	out := outcomeOf(e.Err, resultAcquired)
	if e.Waits && !e.Auxiliary {
		w.waiting.Add(-1)
	}
	if e.Err == nil && !e.Auxiliary {
		w.leases.Add(1)
	}
	a, _ := ctx.Value(acquireKey{}).(*acquireContext)
	if a != nil && a.long != nil {
		a.long.stop()
	}
	if !e.Auxiliary {
		by := labels{key: keyResult, value: out.result}
		seconds(ctx, t.on.acquireDuration, e.Duration.Seconds(), w, labels{key: keyResult, value: out.result, errorType: out.errorType})
		if e.Waits {
			seconds(ctx, t.on.waitTime, e.Waited.Seconds(), w, by)
		}
		if e.MissedWakeUp {
			count(ctx, t.on.missedWakeUps, w, labels{})
		}
		if enabled(ctx, t.on.attempts) {
			t.on.attempts.Record(ctx, int64(e.Attempts), w.with(by).record...)
		}
	}
	if t.log != nil {
		t.log.acquired(ctx, &e, out)
	}
	if a != nil && a.span != nil {
		t.endAcquire(a.span, &e, out)
	}
}

func (t *telemetry) endAcquire(span trace.Span, e *guard.Event, out outcome) {
	if !span.IsRecording() {
		span.End()
		return
	}
	attrs := append(t.common(e), keyResult.String(out.result))
	if e.Attempts != 1 {
		attrs = append(attrs, keyAttempts.Int(e.Attempts))
	}
	if owner := t.redacted(e.Owner); owner != "" {
		attrs = append(attrs, keyOwner.String(owner))
	}
	if e.Waits {
		attrs = append(attrs, keyWaited.Float64(e.Waited.Seconds()))
	}
	how := linkHolder
	switch {
	case e.Err == nil:
		attrs = append(attrs, keyFence.Int64(int64(e.Fence)), keyTTL.Float64(e.TTL.Seconds()))
		if e.Takeover {
			attrs = append(attrs, keyTakeover.Bool(true))
		}
		if e.MissedWakeUp {
			attrs = append(attrs, keyMissedWakeUp.Bool(true))
		}
		if e.HandedOff {
			attrs = append(attrs, keyHandedOff.Bool(true))
		}
		t.link(span, e.Previous, linkPrevious)
	case e.State == guard.Done:
		how = linkFinished
		fallthrough
	default:
		t.link(span, e.Label, how)
		if who := t.holder(e); who != "" {
			attrs = append(attrs, keyHolder.String(who))
		}
	}
	end(span, attrs, out, e.Start.Add(e.Duration))
}

// holder returns the holder of the key, or the run that has done the work, from the store's label.
func (t *telemetry) holder(e *guard.Event) string {
	_, who := spanOf(e.Label)
	return t.scrubbed(who, e.Key, e.Owner)
}

func (t *telemetry) skip(ctx context.Context, e guard.Event) {
	if e.Auxiliary {
		return
	}
	out := outcomeOf(e.Err, "")
	count(ctx, t.on.skipped, t.names.of(e.Name), labels{key: keySkipReason, value: out.result})
	if t.log != nil {
		t.log.skipped(ctx, &e, out.result)
	}
}

// outcome receives the result of a request, a task or a tick from an adapter.
func (t *telemetry) outcome(ctx context.Context, o guard.Outcome) {
	w := t.names.of(o.Name)
	count(ctx, t.on.outcomes, w, labels{key: keyResult, value: o.Result, adapter: o.Adapter})
	if o.Refused != nil && t.log != nil {
		t.log.refused(ctx, &o)
	}
	if o.Skipped == "" {
		return
	}
	count(ctx, t.on.skipped, w, labels{key: keySkipReason, value: o.Skipped})
	e := guard.Event{
		Name: o.Name, Key: o.Key, Owner: o.Owner, Label: o.Label, Fence: o.Fence,
		Start: o.Start, Duration: o.Duration, Err: o.Err,
	}
	if t.log != nil {
		t.log.skipped(ctx, &e, o.Skipped)
	}
	if !t.traces() {
		return
	}
	_, span := t.start(ctx, &e, "skip")
	if !span.IsRecording() {
		span.End()
		return
	}
	attrs := append(t.common(&e), keyAdapter.String(o.Adapter), keySkipReason.String(o.Skipped))
	if who := t.holder(&e); who != "" {
		attrs = append(attrs, keyHolder.String(who))
	}
	how := linkHolder
	if o.Skipped == resultDone {
		how = linkFinished
	}
	t.link(span, e.Label, how)
	end(span, attrs, outcome{result: o.Result}, e.Start.Add(e.Duration))
}
