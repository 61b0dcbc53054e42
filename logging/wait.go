package logging

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

type waitKey struct{}

// acquireStart adds a longWait to the context, which wait starts and acquireEnd stops.
func (l *logger) acquireStart(ctx context.Context, _ guard.Event) context.Context {
	return context.WithValue(ctx, waitKey{}, new(longWait))
}

func (l *logger) wait(ctx context.Context, e guard.WaitEvent) {
	if w, ok := ctx.Value(waitKey{}).(*longWait); ok && e.Purpose != guard.PurposeAuxiliary && e.Purpose != guard.PurposeCandidate {
		w.start(ctx, l, &e)
	}
}

// A longWait logs that a call has waited for a long time.
type longWait struct {
	timer *time.Timer
	ended atomic.Bool
}

// start begins to watch a wait. The caller must call stop.
func (w *longWait) start(ctx context.Context, l *logger, e *guard.WaitEvent) {
	if !l.to.Enabled(ctx, slog.LevelWarn) {
		return
	}
	ctx, waited := context.WithoutCancel(ctx), l.longWait
	armed := make(chan struct{})
	w.timer = time.AfterFunc(waited, func() {
		<-armed
		if w.ended.Load() {
			return
		}
		l.log(ctx, slog.LevelWarn, msgLongWait, &e.Event, slog.Duration("waited", waited), slog.String("holder", l.holder(&e.Event, e.Label)))
		waited *= 2
		w.timer.Reset(waited / 2)
		if w.ended.Load() {
			w.timer.Stop()
		}
	})
	close(armed)
}

func (w *longWait) stop() {
	w.ended.Store(true)
	if w.timer != nil {
		w.timer.Stop()
	}
}
