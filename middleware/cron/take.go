package guardcron

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// A held is a tick whose lease this process has.
type held struct {
	tick  time.Time
	lease *guard.Lease
	again bool          // another process had the tick before, and has not ended it
	old   bool          // it is caught up with: those that are due go before it
	wait  time.Duration // for the job, if another tick runs
	here  *firing
}

// release leaves the tick to the next process that finds it.
func (h *held) release() { _ = h.lease.Release(h.lease.Context()) }

// complete leaves the tick done. The marker may be missing after an error: the next process that
// takes the tick then finds it on record.
func (h *held) complete() { _ = h.lease.Complete(h.lease.Context()) }

// take acquires the lease of a tick within the wait. An error is a *guard.DoneError if the tick was
// ended before, and a *guard.BusyError if another process has it.
func (b *job) take(tick time.Time, wait time.Duration) (*held, error) {
	h := &held{tick: tick}
	waits := guard.Hook{Wait: func(context.Context, guard.WaitEvent) { h.again = true }}
	var err error
	h.lease, err = b.acquire(b.jobs.ctx, b.tickKey(tick), wait,
		guard.WithOnce(b.memory), guard.WithLimit(0), guard.WithLabel(b.leaseLabel(tick)), guard.WithHook(waits), b.jobs.guard.Adapter().Auxiliary())
	if err != nil {
		return nil, err
	}
	return h, nil
}

// acquire takes a lease, and gives up when the job is removed or Jobs are closed. The context of
// the lease ends with ctx.
func (b *job) acquire(ctx context.Context, key string, wait time.Duration, opts ...guard.Option) (*guard.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	waits := context.AfterFunc(b.leaving, func() { cancel(errClosed) })
	lease, err := b.jobs.guard.Acquire(ctx, key, b.leaseOptions(wait, opts...)...)
	if !waits() && err == nil {
		_ = lease.Release(ctx) // it is for another process
		err = errClosed
	}
	if err != nil {
		cancel(err)
		return nil, err
	}
	context.AfterFunc(lease.Context(), func() { cancel(guard.ErrReleased) })
	return lease, nil
}

// A pending is a tick that has come and has no outcome yet.
type pending struct {
	tick   time.Time
	active bool // a goroutine handles it
	// begun means that the tick counts only if a process has begun it, for example because the job
	// or its schedule is new.
	begun bool
	left  bool // it is not one of the newest, which are caught up with
}

// serve makes the ticks pending that have come since it was last called, and starts the newest one
// if that can be started in time. The others wait for it, see lookOnce. here may be nil.
func (b *job) serve(here *firing) {
	if b.leaving.Err() != nil {
		here.end()
		return
	}
	now := b.now()
	b.mu.Lock()
	if b.born.IsZero() { // the Cron was not started, and other code calls
		b.mu.Unlock()
		here.end()
		return
	}
	b.checkClock(now)
	come := b.come(b.schedule, b.seen, now)
	b.seen = ticks.Later(b.seen, now)
	b.addPending(come, false)
	var newest *pending
	if n := len(come.Ticks); n > 0 {
		newest = b.pending[come.Ticks[n-1].UnixMilli()]
	}
	starts := newest != nil && !newest.active && now.Sub(b.at(newest.tick)) <= b.deadline
	others := len(come.Ticks)
	if starts {
		newest.active = true
		b.due++
		others--
	}
	behind := others > 0 || !b.looking && b.hasBacklog()
	b.mu.Unlock()
	starts = starts && b.jobs.inBackground(func() {
		defer b.isDue(-1)
		defer here.end()
		b.await(newest.tick, 0, false, here)
	})
	if !starts {
		here.end()
	}
	if behind {
		b.lookAgain()
	}
}

// checkClock has the ticks count from now on if the clock was wrong, far ahead of now. The markers
// of ticks that were handled remain. b.mu is held.
func (b *job) checkClock(now time.Time) {
	if b.seen.Sub(now) > ticks.MaxSkew {
		b.seen = now.Add(-restart) // for a tick that has just come
		if b.born.After(b.seen) {
			b.born = b.seen
		}
	}
}

// bornAt returns when the Cron first asked for a tick.
func (b *job) bornAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.born
}

// addPending adds the ticks of a span. b.mu is held.
func (b *job) addPending(g ticks.Span, begun bool) {
	for _, tick := range g.Ticks {
		p := b.pending[tick.UnixMilli()]
		if p == nil {
			p = &pending{tick: tick, begun: begun}
			b.pending[tick.UnixMilli()] = p
		}
		p.begun = p.begun && begun
	}
	switch {
	case g.Before == 0:
	case b.more.Before > 0: // none of the earlier ones was reported yet
		b.more.Before, b.more.Last = b.more.Before+g.Before, g.Last
	default:
		b.more = ticks.Span{First: g.First, Before: g.Before, Last: g.Last}
	}
}

// hasBacklog reports whether there are pending ticks that no goroutine handles. b.mu is held.
func (b *job) hasBacklog() bool {
	for _, p := range b.pending {
		if !p.active {
			return true
		}
	}
	return false
}

// settle is called by the goroutine that handles a tick when its outcome is known.
func (b *job) settle(tick time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, tick.UnixMilli())
	b.settled = ticks.Later(b.settled, tick)
}

// putBack is called by the goroutine that handles a tick if the tick has to be looked at again.
func (b *job) putBack(tick time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pending[tick.UnixMilli()]; p != nil {
		p.active = false
	}
}

// retry is putBack, and has a goroutine look at the tick.
func (b *job) retry(tick time.Time) {
	b.putBack(tick)
	b.lookAgain()
}

// finish is called by the goroutine that handles ticks when this process has given them their
// outcome.
func (b *job) finish(ticks ...time.Time) {
	for _, tick := range ticks {
		b.settle(tick)
	}
	b.mu.Lock()
	b.ended = append(b.ended, ticks...)
	b.mu.Unlock()
	b.markAgain()
}

// markAgain is mark. If that fails, it is tried again when the store answers.
func (b *job) markAgain() {
	if b.mark() != nil {
		b.lookAgain()
	}
}

// mark writes down up to which tick all have an outcome, if this process has ended one since. The
// ticks that it has ended after that one go into a log.
func (b *job) mark() error {
	// No other process looks for what is missing before the mark.
	if err := b.writeAgain(); err != nil {
		return err
	}
	b.mu.Lock()
	if !b.checked { // older ticks may be without an outcome
		b.mu.Unlock()
		return nil
	}
	ended, upTo := b.ended, b.settledUpTo()
	b.ended = nil
	for _, tick := range ended {
		b.newest = ticks.Later(b.newest, tick)
	}
	raises := b.newest.After(b.marked) && upTo.After(b.marked)
	b.mu.Unlock()
	for i, tick := range ended {
		if !tick.After(upTo) {
			continue
		}
		if err := b.marks.Ahead(context.WithoutCancel(b.jobs.ctx), tick); err != nil {
			b.mu.Lock()
			b.ended = append(b.ended, ended[i:]...)
			b.mu.Unlock()
			return err
		}
	}
	if !raises {
		return nil
	}
	if _, err := b.marks.Raise(context.WithoutCancel(b.jobs.ctx), upTo); err != nil {
		return err
	}
	b.mu.Lock()
	b.marked = ticks.Later(b.marked, upTo)
	b.mu.Unlock()
	return nil
}

// settledUpTo returns the instant up to which this process knows that all ticks have an outcome.
// b.mu is held.
func (b *job) settledUpTo() time.Time {
	upTo := b.settled
	before := func(tick time.Time) {
		if tick = tick.Add(-time.Millisecond); tick.Before(upTo) {
			upTo = tick
		}
	}
	for _, p := range b.pending {
		if !p.begun { // the log has the others
			before(p.tick)
		}
	}
	if b.more.Before > 0 {
		before(b.more.First)
	}
	return upTo
}

// isDue counts ticks that are due. Old ones go after them.
func (b *job) isDue(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due += n; b.due == 0 && b.quiet != nil {
		close(b.quiet)
		b.quiet = nil
	}
}

// isDone reports whether an error says that a tick was ended before.
func (b *job) isDone(tick, begin time.Time, err error) bool {
	var done *guard.DoneError
	if !errors.As(err, &done) {
		return false
	}
	b.writeFor(tick, done)
	b.report(Record{Result: elsewhere, Start: begin.UTC(), End: b.now().UTC()}, done.Label, skippedDone)
	b.settle(tick)
	b.markAgain()
	return true
}

// await waits until it has the lease of a tick, and runs the tick then, or knows that the tick was
// ended. It waits even if it is too late to run the tick: if the process that has it dies, another
// one must report that. again says that another process had the tick a moment ago. A firing is left
// alone before anything waits.
func (b *job) await(tick time.Time, wait time.Duration, again bool, here *firing) {
	begin := b.now()
	for first := wait == 0; ; first = false {
		h, err := b.take(tick, wait)
		var busy *guard.BusyError
		switch {
		case err == nil:
			h.again, h.here = h.again || again, here
			b.decide(h)
			return
		case b.isDone(tick, begin, err), b.leaving.Err() != nil:
			return
		case first:
			here.end()
			wait, again = b.deadline-b.late(tick), errors.Is(err, guard.ErrBusy)
		case errors.As(err, &busy):
			wait, again = untilOver(busy), true
		default:
			b.cannot(tick, err)
			b.retry(tick)
			return
		}
	}
}

// untilOver returns how long to wait for a lease that is not renewed any more.
func untilOver(busy *guard.BusyError) time.Duration { return max(busy.Left, 0) + time.Second }

// cannot notifies the observers that the store could not be asked. This process asks again.
func (b *job) cannot(tick time.Time, err error) {
	now := b.now().UTC()
	b.notify(Record{Tick: tick.UTC(), Result: Unavailable, Who: b.who, Start: now, End: now, Reason: err.Error()}, string(Unavailable))
}
