package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// after returns what the release leaves behind, at the time of the call.
func (r *release) after() driver.After {
	h := r.holder
	if h.set.minHold == 0 && !r.marks {
		return driver.After{}
	}
	now := h.guard.clock.Now()
	left := max(0, h.granted+h.set.minHold-now)
	if !r.marks {
		return driver.After{Keep: left}
	}
	if marker := h.markerTime(now); marker > 0 {
		return driver.After{Keep: max(marker, left), Done: true, Record: r.record}
	}
	return driver.After{Keep: left} // the period of WithOncePer has passed since the release began
}

// sendMarking sends a release that leaves a done marker. The work may run again without it, so the
// call waits for the answer until the lease ends in the store. The Guard also sends the release
// again while a request takes long, because its connection may be dead: a release that
// leaves something can be repeated. If no answer has come in the end, it looks whether the marker
// is there.
func (r *release) sendMarking(ctx context.Context) (held bool, err error) {
	g := r.holder.guard
	until := max(r.storeEnd, r.at+releaseTimeout(r.claim.TTL))
	closed := g.isClosed()
	if closed {
		until = min(until, r.at+drainTime)
	}
	call := lazyctx.NewCall(ctx, g.clock.Time(until), releaseGrace)
	defer call.End(nil)
	if !closed {
		call.Stop = g.stopCalls
	}
	answer := make(chan bool, 1)
	pause, own := (until-r.at)/3, *r
	repeats := time.AfterFunc(pause, func() {
		g.background.start(func() { own.repeat(call, pause, answer) })
	})
	defer repeats.Stop()
	if held, err = r.try(call); err == nil {
		return held, nil
	}
	select {
	case held = <-answer:
		return held, nil
	default:
	}
	if !closed && ctx.Err() == nil && g.clock.Now() >= until {
		return r.readBack(ctx, err)
	}
	return false, err
}

// repeat sends the release again and again, until there is an answer or call ends. An answer ends
// call.
func (r *release) repeat(call *lazyctx.Context, pause time.Duration, answer chan<- bool) {
	g := r.holder.guard
	for call.Err() == nil {
		held, err := r.sendOnce(call, pause)
		switch {
		case err == nil:
			answer <- held
			call.End(nil)
			return
		case queue.Permanent(err):
			return
		}
		g.sleep(g.clock.Now()+g.jitter.Retry(releaseTries), nil, call.Done(), nil)
	}
}

// readBack sends the release once more after its time was over with err. It returns err unless the
// store has the marker.
func (r *release) readBack(ctx context.Context, err error) (held bool, _ error) {
	held, failed := r.sendOnce(ctx, releaseTimeout(r.claim.TTL))
	if failed == nil && !held {
		err = fmt.Errorf("%w; the lease has ended in the store, which has no marker", err)
	}
	if failed != nil || !held {
		return false, err
	}
	return true, nil
}

// sendOnce sends the release apart from those that try counts. A panic of the Locker is an error.
func (r *release) sendOnce(ctx context.Context, within time.Duration) (held bool, err error) {
	g := r.holder.guard
	sent := g.clock.Now()
	call := lazyctx.NewCall(ctx, g.clock.Time(sent+within), releaseGrace)
	defer call.End(nil)
	err = errAborted // unless Release returns
	contain(func() { held, err = g.releaseClaim(call, r.claim, r.after()) })
	if err != nil {
		err = asStoreError(driver.OpRelease, r.claim.Key, err)
	}
	r.holder.reportRepeat(sent, g.clock.Now()-sent, err)
	return held, err
}

// reportRepeat has the hooks called for a release that was sent again, see sendMarking.
func (h *holder) reportRepeat(sent, took time.Duration, err error) {
	if len(h.set.hooks) > 0 {
		h.guard.reporter.reportCall(&h.ctx, h.set.hooks, h.releaseCall(sent, took, err))
	}
}
