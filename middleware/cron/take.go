package guardcron

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A held is a tick whose lease this process has.
type held struct {
	tick  time.Time
	lease *guard.Lease
	end   func() // ends the lease's context, and does not release it
	again bool   // another process had the tick before, and has not ended it
}

// release leaves the tick to the next process that finds it.
func (h *held) release() {
	_ = h.lease.Release(h.lease.Context())
	h.end()
}

// complete leaves the tick done. The marker may be missing after an error: the next process that
// takes the tick then finds it on record.
func (h *held) complete() {
	_ = h.lease.Complete(h.lease.Context())
	h.end()
}

// take acquires the lease of a tick within the wait. An error is a *guard.DoneError if the tick was
// ended before, and a *guard.BusyError if another process has it.
func (b *job) take(tick time.Time, wait time.Duration) (*held, error) {
	h := &held{tick: tick}
	waits := guard.Hook{Wait: func(context.Context, guard.WaitEvent) { h.again = true }}
	var err error
	h.lease, h.end, err = b.acquire(b.jobs.ctx, b.tickKey(tick), wait,
		guard.WithOnce(b.window), guard.WithLimit(0), guard.WithLabel(b.leaseLabel(tick, start{})), guard.WithHook(waits), b.jobs.guard.Adapter().Auxiliary())
	if err != nil {
		return nil, err
	}
	return h, nil
}

// acquire takes a lease, and gives up when the job is removed or Jobs are closed. The context of
// the lease ends with end, which does not release it.
func (b *job) acquire(ctx context.Context, key string, wait time.Duration, opts ...guard.Option) (lease *guard.Lease, end func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	waits := context.AfterFunc(b.leaving, func() { cancel(errClosed) })
	lease, err = b.jobs.guard.Acquire(ctx, key, b.leaseOptions(wait, opts...)...)
	if !waits() && err == nil {
		_ = lease.Release(ctx) // it is for another process
		err = errClosed
	}
	if err != nil {
		cancel(err)
		return nil, nil, err
	}
	return lease, func() { cancel(guard.ErrReleased) }, nil
}

// handle reports whether the caller should handle the tick: no other goroutine of this process
// does.
func (b *job) handle(tick time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := tick.UnixMilli()
	b.hasArrived(tick)
	if b.handled[at] {
		return false
	}
	b.handled[at] = true
	return true
}

// hasArrived is called when a tick that has come is handled or owed. b.mu is held.
func (b *job) hasArrived(tick time.Time) {
	b.arriving = slices.DeleteFunc(b.arriving, tick.Equal)
}

// settle is called by the goroutine that handles a tick when its outcome is known.
func (b *job) settle(tick time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.handled, tick.UnixMilli())
	delete(b.owed, tick.UnixMilli())
	b.settled = later(b.settled, tick)
}

// owe is called by the goroutine that handles a tick when it has to be looked at again.
func (b *job) owe(tick time.Time) {
	b.mu.Lock()
	delete(b.handled, tick.UnixMilli())
	b.owed[tick.UnixMilli()] = owed{tick: tick}
	b.mu.Unlock()
	b.lookAgain()
}

// fire handles a tick that is due, or an old one that can still be started. It runs it here and now
// if it can. If it has to wait, for the tick, the job or the store, it does that in the background:
// cron.Stop waits for this call.
func (b *job) fire(tick time.Time, old bool) {
	if !b.handle(tick) {
		return
	}
	b.isDue(1)
	begin := b.now()
	h, err := b.take(tick, 0)
	if err == nil {
		b.decide(h, true, old)
		return
	}
	if b.isDone(tick, begin, err) {
		b.isDue(-1)
		return
	}
	again := errors.Is(err, guard.ErrBusy)
	if !b.jobs.inBackground(func() { b.watch(tick, begin, b.deadline-b.late(tick), again) }) {
		b.isDue(-1)
	}
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
	b.report(Record{Outcome: elsewhere, Start: begin.UTC(), End: b.now().UTC()}, done.Label, skippedDone)
	b.settle(tick)
	b.markAgain()
	return true
}

// watch waits until it has the lease of a tick, or knows that the tick was ended. It waits even if
// it is too late to run the tick: if the process that has it dies, another one must report that.
func (b *job) watch(tick, begin time.Time, wait time.Duration, again bool) {
	for {
		h, err := b.take(tick, wait)
		var busy *guard.BusyError
		switch {
		case err == nil:
			h.again = h.again || again
			b.decide(h, false, false)
			return
		case errors.As(err, &busy):
			wait, again = untilOver(busy), true
			continue
		case b.isDone(tick, begin, err):
		case b.leaving.Err() != nil:
		default:
			b.cannot(tick, err)
			b.owe(tick)
		}
		b.isDue(-1)
		return
	}
}

// untilOver returns how long to wait for a lease that is not renewed any more.
func untilOver(busy *guard.BusyError) time.Duration { return max(busy.Left, 0) + time.Second }

// cannot notifies the observers that the store could not be asked. This process asks again.
func (b *job) cannot(tick time.Time, err error) {
	now := b.now().UTC()
	r := Record{Job: b.name, Tick: tick.UTC(), Outcome: Unavailable, Who: b.who(), Start: now, End: now, Reason: err.Error()}
	b.report(r, "", string(Unavailable))
	for _, f := range b.observed {
		contained(func() { f(r) })
	}
}
