package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/signals"
)

var lossReasons = []guard.LossReason{guard.LossExpired, guard.LossNotHeld, guard.LossSuspended, guard.LossMaxHold, guard.LossReleased}

func (t *telemetry) renew(ctx context.Context, e guard.RenewEvent) {
	w := t.names.of(e.Name)
	out := signals.OutcomeOf(e.Err, signals.Renewed)
	by := labels{key: keyResult, value: out.Result, errorType: out.ErrorType}
	seconds(ctx, t.on.renewDuration, e.Duration.Seconds(), w, by)
	t.called(ctx, driver.OpRenew, e.Duration.Seconds(), e.Err)
	if e.Err == nil && e.Used > 0 {
		seconds(ctx, t.on.utilization, share(e.Used, e.TTL), w, labels{})
	}
	if !t.set.renewals || !t.traces() {
		return
	}
	_, span := t.startOf(ctx, &e.LeaseEvent, "renew", trace.WithTimestamp(e.Start))
	end(span, append(t.common(&e.Event), keyResult.String(out.Result), keyFence.Int64(int64(e.Fence))), out, e.Start.Add(e.Duration))
}

func (t *telemetry) loss(ctx context.Context, e guard.LossEvent) {
	w := t.names.of(e.Name)
	if e.Purpose == guard.PurposeCandidate {
		w.election.end(&e.Event)
	}
	count(ctx, t.on.losses, w, labels{key: keyLossReason, value: string(e.Err.Reason)})
	if hadDeadline(e.Err.Reason) {
		seconds(ctx, t.on.lateness, e.Err.Late.Seconds(), w, labels{})
	}
}

// hadDeadline reports whether a lease that was lost for the reason had an instant at which its
// context should have ended.
func hadDeadline(reason guard.LossReason) bool {
	return reason == guard.LossExpired || reason == guard.LossMaxHold || reason == guard.LossSuspended
}

// The values of onerun.end.
const (
	endReleased = "released"
	endLost     = "lost"    // it had been lost before
	endUnknown  = "unknown" // the store did not answer: it ends with its TTL
)

func (t *telemetry) release(ctx context.Context, e guard.ReleaseEvent) {
	out := signals.OutcomeOf(e.Err, signals.Released)
	if e.Purpose != guard.PurposeAuxiliary {
		ended := endReleased
		switch out.Result {
		case signals.Lost:
			ended = endLost
		case signals.Error:
			ended = endUnknown
		}
		w := t.names.of(e.Name)
		w.leases.Add(-1)
		seconds(ctx, t.on.leaseDuration, e.Held.Seconds(), w, labels{key: keyEnd, value: ended})
	}
	nothingSent := e.Attempts == 0 && !e.HandedOff // the store no longer knew the lease
	if e.Purpose == guard.PurposeAuxiliary || nothingSent || !t.traces() {
		return
	}
	_, span := t.startOf(ctx, &e.LeaseEvent, "release", trace.WithTimestamp(e.Start))
	if !span.IsRecording() {
		span.End()
		return
	}
	attrs := append(t.common(&e.Event), keyResult.String(out.Result), keyFence.Int64(int64(e.Fence)), keyHeld.Float64(e.Held.Seconds()))
	if e.Attempts != 1 {
		attrs = append(attrs, keyAttempts.Int(e.Attempts))
	}
	if e.HandedOff {
		attrs = append(attrs, keyHandedOff.Bool(true))
	}
	end(span, attrs, out, e.Start.Add(e.Duration))
}

// call receives each call to the store, except renewals.
func (t *telemetry) call(ctx context.Context, e guard.CallEvent) {
	if e.Node != "" {
		t.nodeCall(ctx, &e)
		return
	}
	t.called(ctx, e.Op, e.Duration.Seconds(), e.Err)
	if e.Op == driver.OpAcquire && e.Purpose == guard.PurposeCandidate && e.Err == nil {
		t.names.of(e.Name).election.follows(ctx, e.StoreAnswer, e.TTL)
	}
	if e.Op == driver.OpAcquire && e.Err != nil {
		count(ctx, t.on.unknown, t.names.of(e.Name), labels{key: keyErrorType, value: signals.OutcomeOf(e.Err, "").ErrorType})
	}
}

// nodeCall receives each call to a node of a quorum.
func (t *telemetry) nodeCall(ctx context.Context, e *guard.CallEvent) {
	out := signals.OutcomeOf(e.Err, "")
	seconds(ctx, t.on.nodeDuration, e.Duration.Seconds(), t.plain,
		labels{bare: true, key: keyOperation, value: string(e.Op), errorType: out.ErrorType, node: e.Node})
}

func (t *telemetry) called(ctx context.Context, op driver.Op, took float64, err error) {
	out := signals.OutcomeOf(err, "")
	if errors.Is(err, guard.ErrLost) {
		out.ErrorType = "" // it was an answer
	}
	seconds(ctx, t.on.storeDuration, took, t.plain, labels{bare: true, key: keyOperation, value: string(op), errorType: out.ErrorType})
}

func (t *telemetry) orphan(ctx context.Context, e guard.OrphanEvent) {
	if e.Pending {
		t.orphans.Add(1)
	} else {
		t.orphans.Add(-1)
	}
}
