package tracing

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

// logger writes log records. It is nil if there is no slog.Logger.
type logger struct {
	*telemetry
	to    *slog.Logger
	down  atomic.Int64 // calls to the store in a row that have failed
	nodes sync.Map     // of nodes to *atomic.Int64: calls in a row to the node that have failed
}

// log writes a record with the details of e, and more, in the group "onerun". It does nothing if
// the level is disabled.
func (l *logger) log(ctx context.Context, level slog.Level, msg string, e *guard.Event, more ...slog.Attr) {
	if !l.to.Enabled(ctx, level) {
		return
	}
	attrs := make([]any, 0, 5+len(more))
	if e.Node == "" { // calls to a node are counted for all work together
		attrs = append(attrs, slog.String("name", cmp.Or(e.Name, NoName)))
	}
	if key := l.redacted(e.Key); key != "" {
		attrs = append(attrs, slog.String("key", key))
	}
	if owner := l.redacted(e.Owner); owner != "" {
		attrs = append(attrs, slog.String("owner", owner))
	}
	if e.Fence > 0 {
		attrs = append(attrs, slog.Uint64("fence", e.Fence))
	}
	if e.Auxiliary {
		attrs = append(attrs, slog.Bool("aside", true))
	}
	for _, a := range more {
		if !a.Equal(slog.Attr{}) {
			attrs = append(attrs, a)
		}
	}
	l.to.LogAttrs(ctx, level, msg, slog.Group("onerun", attrs...))
}

// how returns the attributes that say how something ended.
func how(out outcome) (result, errorType slog.Attr) {
	if out.errorType != "" {
		errorType = slog.String("error_type", out.errorType)
	}
	return slog.String("result", out.result), errorType
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
	return slog.String("error", l.scrubbed(text, e.Key, e.Owner, store.Key))
}

func (l *logger) acquired(ctx context.Context, e *guard.Event, out outcome) {
	result, errorType := how(out)
	msg := msgAcquired
	switch out.result {
	case resultAcquired:
	case resultBusy, resultDone: // skipped logs it
		return
	default:
		msg = msgNotAcquired
	}
	l.log(ctx, slog.LevelDebug, msg, e, result, errorType, slog.Int("attempts", e.Attempts), slog.Duration("waited", e.Waited), slog.Bool("takeover", e.Takeover))
}

func (l *logger) ran(ctx context.Context, e *guard.Event, out outcome) {
	result, errorType := how(out)
	if out.result == resultPanic {
		l.log(ctx, slog.LevelError, msgPanicked, e, result, errorType, slog.Duration("took", e.Duration))
		return
	}
	l.log(ctx, slog.LevelDebug, msgRan, e, result, errorType, slog.Duration("took", e.Duration), slog.Int("renewals", e.Renewals))
}

func (l *logger) skipped(ctx context.Context, e *guard.Event, reason string) {
	if !l.to.Enabled(ctx, slog.LevelDebug) {
		return
	}
	span, _ := spanOf(e.Label)
	var traceID slog.Attr
	if span.IsValid() && !l.set.noLinks {
		traceID = slog.String("holder_trace_id", span.TraceID().String())
	}
	l.log(ctx, slog.LevelDebug, msgSkipped, e, slog.String("reason", reason), slog.String("holder", l.holder(e)), traceID, slog.Duration("waited", e.Waited))
}

// refused logs that an adapter has refused work because of a mistake in the setup. The cause is
// the error of a function of the application.
func (l *logger) refused(ctx context.Context, o *guard.Outcome) {
	l.log(ctx, slog.LevelWarn, msgRefused, &guard.Event{Name: o.Name, Key: o.Key, Owner: o.Owner}, slog.String("adapter", o.Adapter),
		slog.String("result", o.Result), slog.String("error", l.scrubbed(o.Refused.Error(), o.Key, o.Owner)))
}

func (l *logger) renewed(ctx context.Context, e *guard.Event, out outcome) {
	if out.result != resultError || !isPowerOfTwo(e.Failures) {
		return
	}
	_, errorType := how(out)
	l.log(ctx, slog.LevelWarn, msgRenewal, e, errorType, slog.Int("failures", e.Failures), l.cause(e.Err, e))
}

func (l *logger) lost(ctx context.Context, e *guard.Event, lost *guard.LostError) {
	l.log(ctx, slog.LevelError, msgLost, e, slog.String("reason", string(lost.Reason)), slog.Duration("late", lost.Late), slog.Int("renewals", e.Renewals),
		text("broken", l.scrubbed(lost.Broken, e.Key, e.Owner)), l.cause(lost.Renew, e))
}

func (l *logger) released(ctx context.Context, e *guard.Event, out outcome) {
	result, errorType := how(out)
	if out.result == resultError {
		l.log(ctx, slog.LevelWarn, msgRelease, e, errorType, slog.Duration("ends_within", e.TTL), l.cause(e.Err, e))
		return
	}
	l.log(ctx, slog.LevelDebug, msgReleased, e, result, errorType, slog.Duration("held", e.Held), slog.Int("renewals", e.Renewals))
}

// called receives each call to the store, except renewals, which have a message of their own.
func (l *logger) called(ctx context.Context, e *guard.Event) {
	out := outcomeOf(e.Err, "")
	switch {
	case e.Err == nil:
		if n := l.down.Load(); n > 0 && l.down.CompareAndSwap(n, 0) {
			l.log(ctx, slog.LevelInfo, msgStoreUp, &guard.Event{Name: e.Name}, slog.Int64("failures", n))
		}
	case out.errorType != "" && out.errorType != string(driver.KindCanceled):
		if n := l.down.Add(1); isPowerOfTwo(int(n)) {
			l.log(ctx, slog.LevelWarn, msgStoreDown, e, slog.String("operation", string(e.Op)), slog.String("error_type", out.errorType),
				slog.Int64("failures", n), l.cause(e.Err, e))
		}
	}
}

// nodeCalled receives each call to a node of a quorum.
func (l *logger) nodeCalled(ctx context.Context, e *guard.Event, out outcome) {
	node := slog.String("node", e.Node)
	if e.Err == nil {
		if down, ok := l.nodes.LoadAndDelete(e.Node); ok {
			l.log(ctx, slog.LevelInfo, msgNodeUp, e, node, slog.Int64("failures", down.(*atomic.Int64).Load()))
		}
		return
	}
	down, _ := l.nodes.LoadOrStore(e.Node, new(atomic.Int64))
	if n := down.(*atomic.Int64).Add(1); isPowerOfTwo(int(n)) {
		l.log(ctx, slog.LevelWarn, msgNodeDown, e, node, slog.String("operation", string(e.Op)), slog.String("error_type", out.errorType),
			slog.Int64("failures", n), l.cause(e.Err, e))
	}
}

func (l *logger) orphan(ctx context.Context, e *guard.Event) {
	switch op := slog.String("operation", string(e.Op)); {
	case e.Pending:
		l.log(ctx, slog.LevelDebug, msgOrphan, e, op)
	case e.Err == nil:
		l.log(ctx, slog.LevelDebug, msgGone, e, op, slog.Int("attempts", e.Attempts), slog.Duration("took", e.Duration))
	default:
		l.log(ctx, slog.LevelWarn, msgLeft, e, op, slog.Int("attempts", e.Attempts), slog.Duration("took", e.Duration), l.cause(e.Err, e))
	}
}

func isPowerOfTwo(n int) bool { return n > 0 && bits.OnesCount(uint(n)) == 1 }

// A longWait logs that a call has waited for a long time.
type longWait struct {
	timer *time.Timer
	ended atomic.Bool
}

// watch begins to watch a wait. The caller must call stop.
func (l *logger) watch(ctx context.Context, e *guard.Event) *longWait {
	w := new(longWait)
	if !l.to.Enabled(ctx, slog.LevelWarn) {
		return w
	}
	ctx, waited, event := context.WithoutCancel(ctx), l.set.longWait, *e
	armed := make(chan struct{})
	w.timer = time.AfterFunc(waited, func() {
		<-armed
		if w.ended.Load() {
			return
		}
		l.log(ctx, slog.LevelWarn, msgLongWait, &event, slog.Duration("waited", waited), slog.String("holder", l.holder(&event)))
		waited *= 2
		w.timer.Reset(waited / 2)
		if w.ended.Load() {
			w.timer.Stop()
		}
	})
	close(armed)
	return w
}

func (w *longWait) stop() {
	w.ended.Store(true)
	if w.timer != nil {
		w.timer.Stop()
	}
}
