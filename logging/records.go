package logging

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/signals"
)

// The messages of log records. Each is constant, so that logs can be searched and counted by it.
const (
	msgAcquired    = "lease acquired"     // debug
	msgNotAcquired = "lease not acquired" // debug
	msgReleased    = "lease released"     // debug
	msgSkipped     = "duplicate skipped"  // debug
	msgRan         = "run ended"          // debug
	msgPanicked    = "run panicked"       // error
	msgLongWait    = "wait is long"       // warn, again when it has doubled
	// Warn, at the first, second, fourth … in a row.
	msgRenewal = "renewal failed"
	msgLost    = "lease lost" // error
	// warn: the key stays taken until the TTL has passed, or the clean-up succeeds
	msgRelease = "release failed"
	// Warn, at the first, second, fourth … call in a row.
	msgStoreDown = "store cannot be asked"
	msgStoreUp   = "store answers again" // info
	// Warn, at the first, second, fourth … call in a row.
	msgNodeDown = "node cannot be asked"
	msgNodeUp   = "node answers again"                      // info
	msgOrphan   = "outcome unknown, clean-up begun"         // debug
	msgGone     = "clean-up ended"                          // debug
	msgRefused  = "work refused"                            // warn
	msgLeft     = "clean-up given up, the lease's TTL ends" // warn
	msgWarning  = "store may lose leases"                   // warn, once
)

// A logger writes log records.
type logger struct {
	to       *slog.Logger
	redact   *signals.Redactor
	longWait time.Duration
	down     atomic.Int64 // calls to the store in a row that have failed
	nodes    sync.Map     // of nodes to *atomic.Int64: calls in a row to the node that have failed
}

// off reports whether nothing is logged.
func (l *logger) off() bool { return !l.to.Enabled(context.Background(), slog.LevelError) }

// log writes a record with the details of e, and more, in the group "onerun". e is nil if the
// record is not about one name. log does nothing if the level is disabled.
func (l *logger) log(ctx context.Context, level slog.Level, msg string, e *guard.Event, more ...slog.Attr) {
	if !l.to.Enabled(ctx, level) {
		return
	}
	attrs := make([]any, 0, 4+len(more))
	if e != nil {
		attrs = append(attrs, slog.String("name", cmp.Or(e.Name, signals.NoName)))
		if key := l.redact.Key(e.Key); key != "" {
			attrs = append(attrs, slog.String("key", key))
		}
		if owner := l.redact.Secret(e.Owner); owner != "" {
			attrs = append(attrs, slog.String("owner", owner))
		}
		if e.Purpose == guard.PurposeAuxiliary {
			attrs = append(attrs, slog.Bool("aside", true))
		}
	}
	for _, a := range more {
		if !a.Equal(slog.Attr{}) {
			attrs = append(attrs, a)
		}
	}
	l.to.LogAttrs(ctx, level, msg, slog.Group("onerun", attrs...))
}

// how returns the attributes that say how something ended.
func how(out signals.Outcome) (result, errorType slog.Attr) {
	if out.ErrorType != "" {
		errorType = slog.String("error_type", out.ErrorType)
	}
	return slog.String("result", out.Result), errorType
}

// fence returns the attribute of a fence, or none if it is 0.
func fence(n uint64) slog.Attr {
	if n == 0 {
		return slog.Attr{}
	}
	return slog.Uint64("fence", n)
}

// text returns an attribute, or none if the value is empty.
func text(name, value string) slog.Attr {
	if value == "" {
		return slog.Attr{}
	}
	return slog.String(name, value)
}

// cause returns the error of a store, without the secrets of e. The errors of the user's functions
// are not logged.
func (l *logger) cause(err error, e *guard.Event) slog.Attr {
	var store *guard.StoreError
	if !errors.As(err, &store) || store.Err == nil {
		return slog.Attr{}
	}
	text := store.Err.Error()
	if store.Addr != "" {
		text += " at " + store.Addr
	}
	return slog.String("error", l.redact.Scrub(text, e.Key, e.Owner, store.Key))
}

func (l *logger) acquireEnd(ctx context.Context, e guard.AcquireEvent) {
	if w, ok := ctx.Value(waitKey{}).(*longWait); ok {
		w.stop()
	}
	out := signals.OutcomeOf(e.Err, signals.Acquired)
	result, errorType := how(out)
	msg := msgAcquired
	switch out.Result {
	case signals.Acquired:
	case signals.Busy, signals.Done: // skip logs it
		return
	default:
		msg = msgNotAcquired
	}
	l.log(ctx, slog.LevelDebug, msg, &e.Event, fence(e.Fence), result, errorType, slog.Int("attempts", e.Attempts), slog.Duration("waited", e.Waited), slog.Bool("takeover", e.Grant == guard.GrantTakeover))
}

func (l *logger) runEnd(ctx context.Context, e guard.RunEndEvent) {
	out := signals.OutcomeOfRun(&e)
	result, errorType := how(out)
	if out.Result == signals.Panic {
		l.log(ctx, slog.LevelError, msgPanicked, &e.Event, fence(e.Fence), result, errorType, slog.Duration("took", e.Duration))
		return
	}
	l.log(ctx, slog.LevelDebug, msgRan, &e.Event, fence(e.Fence), result, errorType, slog.Duration("took", e.Duration), slog.Int("renewals", e.Renewals))
}

func (l *logger) skip(ctx context.Context, e guard.SkipEvent) {
	if e.Purpose != guard.PurposeAuxiliary {
		l.skipped(ctx, &e, 0, signals.OutcomeOf(e.Err, "").Result)
	}
}

func (l *logger) skipped(ctx context.Context, e *guard.SkipEvent, by uint64, reason string) {
	if !l.to.Enabled(ctx, slog.LevelDebug) {
		return
	}
	_, traceID, _ := signals.SplitLabel(e.Label)
	l.log(ctx, slog.LevelDebug, msgSkipped, &e.Event, fence(by), slog.String("reason", reason), slog.String("holder", l.holder(&e.Event, e.Label)),
		text("holder_trace_id", traceID), slog.Duration("waited", e.Waited))
}

// holder returns the holder of the key, or the run that has done the work, from the store's label.
func (l *logger) holder(e *guard.Event, label string) string {
	who, _, _ := signals.SplitLabel(label)
	return l.redact.Scrub(who, e.Key, e.Owner)
}

// outcome receives the result of a request, a task or a tick from an adapter. The cause of a
// refusal is the error of a function of the application: it is logged, as only its author can mend
// it.
func (l *logger) outcome(ctx context.Context, o guard.Outcome) {
	e := guard.Event{Name: o.Name, Key: o.Key, Owner: o.Owner}
	if o.Refused != nil {
		l.log(ctx, slog.LevelWarn, msgRefused, &e, slog.String("adapter", o.Adapter),
			slog.String("result", o.Result), slog.String("error", l.redact.Scrub(o.Refused.Error(), o.Key, o.Owner)))
	}
	if o.Skipped != "" {
		l.skipped(ctx, &guard.SkipEvent{Event: e, StoreAnswer: guard.StoreAnswer{Label: o.Label}}, o.Fence, o.Skipped)
	}
}

func (l *logger) renew(ctx context.Context, e guard.RenewEvent) {
	out := signals.OutcomeOf(e.Err, signals.Renewed)
	if out.Result != signals.Error || !isPowerOfTwo(e.Failures) {
		return
	}
	_, errorType := how(out)
	l.log(ctx, slog.LevelWarn, msgRenewal, &e.Event, fence(e.Fence), errorType, slog.Int("failures", e.Failures), l.cause(e.Err, &e.Event))
}

func (l *logger) loss(ctx context.Context, e guard.LossEvent) {
	lost := e.Err
	l.log(ctx, slog.LevelError, msgLost, &e.Event, fence(e.Fence), slog.String("reason", string(lost.Reason)), slog.Duration("late", lost.Late), slog.Int("renewals", e.Renewals),
		text("broken", l.redact.Scrub(lost.Broken, e.Key, e.Owner)), l.cause(lost.Renew, &e.Event))
}

func (l *logger) release(ctx context.Context, e guard.ReleaseEvent) {
	out := signals.OutcomeOf(e.Err, signals.Released)
	result, errorType := how(out)
	if out.Result == signals.Error {
		l.log(ctx, slog.LevelWarn, msgRelease, &e.Event, fence(e.Fence), errorType, slog.Duration("ends_within", e.TTL), l.cause(e.Err, &e.Event))
		return
	}
	l.log(ctx, slog.LevelDebug, msgReleased, &e.Event, fence(e.Fence), result, errorType, slog.Duration("held", e.Held), slog.Int("renewals", e.Renewals))
}

// call receives each call to the store, except renewals, which have a message of their own.
func (l *logger) call(ctx context.Context, e guard.CallEvent) {
	if e.Node != "" {
		l.nodeCall(ctx, &e)
		return
	}
	out := signals.OutcomeOf(e.Err, "")
	switch {
	case e.Err == nil:
		if n := l.down.Load(); n > 0 && l.down.CompareAndSwap(n, 0) {
			l.log(ctx, slog.LevelInfo, msgStoreUp, &guard.Event{Name: e.Name}, slog.Int64("failures", n))
		}
	case out.ErrorType != "" && out.ErrorType != string(driver.KindCanceled):
		if n := l.down.Add(1); isPowerOfTwo(int(n)) {
			l.log(ctx, slog.LevelWarn, msgStoreDown, &e.Event, slog.String("operation", string(e.Op)), slog.String("error_type", out.ErrorType),
				slog.Int64("failures", n), l.cause(e.Err, &e.Event))
		}
	}
}

// nodeCall receives each call to a node of a quorum.
func (l *logger) nodeCall(ctx context.Context, e *guard.CallEvent) {
	out := signals.OutcomeOf(e.Err, "")
	node := slog.String("node", e.Node)
	if e.Err == nil {
		if down, ok := l.nodes.LoadAndDelete(e.Node); ok {
			l.log(ctx, slog.LevelInfo, msgNodeUp, nil, node, slog.Int64("failures", down.(*atomic.Int64).Load()))
		}
		return
	}
	down, _ := l.nodes.LoadOrStore(e.Node, new(atomic.Int64))
	if n := down.(*atomic.Int64).Add(1); isPowerOfTwo(int(n)) {
		l.log(ctx, slog.LevelWarn, msgNodeDown, nil, node, slog.String("operation", string(e.Op)), slog.String("error_type", out.ErrorType),
			slog.Int64("failures", n), l.cause(e.Err, &e.Event))
	}
}

func (l *logger) orphan(ctx context.Context, e guard.OrphanEvent) {
	switch op := slog.String("operation", string(e.Op)); {
	case e.Pending:
		l.log(ctx, slog.LevelDebug, msgOrphan, &e.Event, op)
	case e.Err == nil:
		l.log(ctx, slog.LevelDebug, msgGone, &e.Event, op, slog.Int("attempts", e.Attempts), slog.Duration("took", e.Duration))
	default:
		l.log(ctx, slog.LevelWarn, msgLeft, &e.Event, op, slog.Int("attempts", e.Attempts), slog.Duration("took", e.Duration), l.cause(e.Err, &e.Event))
	}
}

func (l *logger) warn(ctx context.Context, err error) {
	l.log(ctx, slog.LevelWarn, msgWarning, nil, slog.String("error", err.Error()))
}

func isPowerOfTwo(n int) bool { return n > 0 && bits.OnesCount(uint(n)) == 1 }
