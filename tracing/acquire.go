package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/signals"
)

// acquireContext is the context of an acquire.
type acquireContext struct {
	context.Context
	span trace.Span
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
	if e.Purpose == guard.PurposeCandidate {
		ctx = t.names.of(e.Name).election.campaign(ctx)
	}
	if e.Purpose == guard.PurposeAuxiliary || !t.traces() {
		return ctx
	}
	ctx, span := t.start(ctx, &e, "acquire")
	return &acquireContext{Context: ctx, span: span}
}

func (t *telemetry) wait(ctx context.Context, e guard.WaitEvent) {
	if e.Purpose == guard.PurposeAuxiliary {
		return
	}
	w := t.names.of(e.Name)
	if e.Purpose == guard.PurposeCandidate { // it stands by: nobody has to end this wait
		w.election.follows(ctx, e.StoreAnswer, e.TTL)
		return
	}
	w.waiting.Add(1)
}

func (t *telemetry) acquireEnd(ctx context.Context, e guard.AcquireEvent) {
	if e.Purpose == guard.PurposeAuxiliary {
		return
	}
	w := t.names.of(e.Name)
	out := signals.OutcomeOf(e.Err, signals.Acquired)
	if e.Err == nil {
		w.leases.Add(1)
	}
	by := labels{key: keyResult, value: out.Result}
	seconds(ctx, t.on.acquireDuration, e.Duration.Seconds(), w, labels{key: keyResult, value: out.Result, errorType: out.ErrorType})
	if e.Purpose == guard.PurposeCandidate {
		w.election.decided(ctx)
	} else if e.Waits {
		w.waiting.Add(-1)
		seconds(ctx, t.on.waitTime, e.Waited.Seconds(), w, by)
	}
	if e.Grant == guard.GrantMissedWakeUp {
		count(ctx, t.on.missedWakeUps, w, labels{})
	}
	if enabled(ctx, t.on.attempts) {
		t.on.attempts.Record(ctx, int64(e.Attempts), w.with(by).record...)
	}
	if a, ok := ctx.Value(acquireKey{}).(*acquireContext); ok {
		t.endAcquire(a.span, &e, out)
	}
}

var grantKeys = map[guard.GrantReason]attribute.Key{
	guard.GrantTakeover: keyTakeover, guard.GrantMissedWakeUp: keyMissedWakeUp, guard.GrantHandOff: keyHandedOff,
}

func (t *telemetry) endAcquire(span trace.Span, e *guard.AcquireEvent, out signals.Outcome) {
	if !span.IsRecording() {
		span.End()
		return
	}
	attrs := append(t.common(&e.Event), keyResult.String(out.Result))
	if e.Attempts != 1 {
		attrs = append(attrs, keyAttempts.Int(e.Attempts))
	}
	if owner := t.redact.Secret(e.Owner); owner != "" {
		attrs = append(attrs, keyOwner.String(owner))
	}
	if e.Waits {
		attrs = append(attrs, keyWaited.Float64(e.Waited.Seconds()))
	}
	how := linkHolder
	switch {
	case e.Err == nil:
		attrs = append(attrs, keyFence.Int64(int64(e.Fence)), keyTTL.Float64(e.TTL.Seconds()))
		if key, ok := grantKeys[e.Grant]; ok {
			attrs = append(attrs, key.Bool(true))
		}
		t.link(span, e.Previous, linkPrevious)
	case e.State == driver.Done:
		how = linkFinished
		fallthrough
	default:
		t.link(span, e.Label, how)
		if who := t.holder(&e.Event, e.Label); who != "" {
			attrs = append(attrs, keyHolder.String(who))
		}
	}
	end(span, attrs, out, e.Start.Add(e.Duration))
}

// holder returns the holder of the key, or the run that has done the work, from the store's label.
func (t *telemetry) holder(e *guard.Event, label string) string {
	who, _, _ := signals.SplitLabel(label)
	return t.redact.Scrub(who, e.Key, e.Owner)
}

func (t *telemetry) skip(ctx context.Context, e guard.SkipEvent) {
	if e.Purpose == guard.PurposeAuxiliary {
		return
	}
	out := signals.OutcomeOf(e.Err, "")
	count(ctx, t.on.skipped, t.names.of(e.Name), labels{key: keySkipReason, value: out.Result})
}

// outcome receives the result of a request, a task or a tick from an adapter.
func (t *telemetry) outcome(ctx context.Context, o guard.Outcome) {
	w := t.names.of(o.Name)
	count(ctx, t.on.outcomes, w, labels{key: keyResult, value: o.Result, adapter: o.Adapter})
	if o.Skipped == "" {
		return
	}
	count(ctx, t.on.skipped, w, labels{key: keySkipReason, value: o.Skipped})
	e := guard.Event{Name: o.Name, Key: o.Key, Owner: o.Owner, Start: o.Start}
	if !t.traces() {
		return
	}
	_, span := t.start(ctx, &e, "skip", trace.WithTimestamp(e.Start))
	if !span.IsRecording() {
		span.End()
		return
	}
	attrs := append(t.common(&e), keyAdapter.String(o.Adapter), keySkipReason.String(o.Skipped))
	if who := t.holder(&e, o.Label); who != "" {
		attrs = append(attrs, keyHolder.String(who))
	}
	how := linkHolder
	if o.Skipped == signals.Done {
		how = linkFinished
	}
	t.link(span, o.Label, how)
	end(span, attrs, signals.Outcome{Result: o.Result}, e.Start.Add(o.Duration))
}
