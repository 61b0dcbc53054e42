package guardcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// leaseLabel says which tick a lease is for, and which process has it. It is for people.
func (b *job) leaseLabel(tick time.Time) string { return b.tickKey(tick) + " " + b.who }

// decide starts a tick that is due, if it can still be started in time. If not, it goes to the
// backlog. A tick that was begun before is not left out because a later one has begun meanwhile.
func (b *job) decide(h *held) {
	late := b.late(h.tick)
	if late > b.deadline {
		h.release()
		b.retry(h.tick)
		return
	}
	if b.overlap == Wait || h.again {
		h.wait = b.deadline - late
	}
	if h.again && b.abandoned(h) {
		h.complete()
		b.finish(h.tick)
		return
	}
	b.runTick(h)
}

// runTick runs a tick whose lease this process has: it acquires the job, has the Cron run it, keeps
// the outcome, and releases both. It returns when the tick has run, was left out, or was given up.
func (b *job) runTick(h *held) {
	if b.heldBack(h) {
		return
	}
	own, free, waited, err := b.enter(h)
	switch {
	case errors.Is(err, guard.ErrBusy): // the hooks were notified of it
		b.leaveOut(h, "", err.Error())
		return
	case err != nil: // the lease of the tick was lost, or the store is unavailable
		b.giveUp(h, err)
		return
	case waited && b.heldBack(h):
		free()
		return
	}
	begun := false
	run := func() {
		begun = true
		defer b.finish(h.tick)
		defer free()
		r := Record{Tick: h.tick.UTC(), Fence: own.Fence()}
		ctx := context.WithValue(own.Context(), tickContext{}, r.Tick)
		_ = b.call(ctx, own, entry{Record: r, Old: h.old}, h) // the error is on record
	}
	if !h.here.runs(run) {
		b.throughCron(run)
	}
	if !begun {
		// The Cron was stopped, or the job was removed: the tick is for another process, or for
		// this one when the Cron is started again.
		free()
		h.release()
		b.putBack(h.tick)
	}
}

// heldBack ends a tick without a run if the job is paused. If the store does not say whether it
// is, the job does not run either: this process gives the tick up.
func (b *job) heldBack(h *held) bool {
	switch last, err := lastPause(h.lease.Context(), b.ledger, b.name); {
	case err != nil:
		b.giveUp(h, err)
	case last.lasts(b.now()):
		b.leaveOut(h, skippedPaused, "the job is paused")
	default:
		return false
	}
	return true
}

// enter acquires the lease of the job, which free releases, and waits for it as long as h and
// extraWait say. With Allow, the lease of the tick is enough.
func (b *job) enter(h *held) (own *guard.Lease, free func(), waited bool, err error) {
	if b.overlap == Allow {
		return h.lease, func() {}, false, nil
	}
	ctx, begin := h.lease.Context(), time.Now()
	for wait := time.Duration(0); ; waited = true {
		own, err := b.acquire(ctx, b.runKey(), wait, b.runOptions(b.leaseLabel(h.tick))...)
		if err == nil {
			return own, func() { _ = own.Release(ctx) }, waited, nil // it ends by itself otherwise
		}
		var busy *guard.BusyError
		if ctx.Err() != nil || !errors.As(err, &busy) {
			return nil, nil, waited, err
		}
		wait = 0
		if !h.old {
			var unknown error
			if wait, unknown = b.extraWait(h, busy, begin, !waited); unknown != nil {
				return nil, nil, waited, unknown
			}
		}
		if !waited {
			wait = max(wait, h.wait)
		}
		if wait <= 0 {
			return nil, nil, waited, err
		}
		h.here.end()
	}
}

// extraWait returns for how long a tick waits for the run that keeps the job busy, whatever
// WithOverlap says. begin is when it was first found busy.
//
// If an old tick runs, it waits until the deadline, or the next tick. Otherwise it may start as
// late as the run that is under way did: without what has delayed that run, it would have found
// the job idle. A lease that was not renewed in time is that of a process which has died, and ends
// soon.
func (b *job) extraWait(h *held, busy *guard.BusyError, begin time.Time, first bool) (time.Duration, error) {
	left, late := untilOver(busy), b.late(h.tick)
	part := time.Until(h.lease.ValidUntil()) / 4
	if first && busy.Left >= 0 && busy.Left < part {
		return left, nil
	}
	lines, err := b.ledger.EntriesOf(h.lease.Context(), []string{ledgerName(b.name), byHandName(b.name)}, b.readLines())
	if err != nil {
		return 0, err
	}
	runs := append(b.ownOf(parse(lines[0])).running(time.Time{}), parse(lines[1]).running(time.Time{})...)
	if len(runs) == 0 { // if the run began late, it is being written down
		if time.Since(begin) < part {
			return min(left, writePause), nil
		}
		return 0, nil
	}
	run := slices.MaxFunc(runs, func(a, b entry) int { return a.Start.Compare(b.Start) })
	if run.Tick.IsZero() { // by hand
		return 0, nil
	}
	limit := run.Start.Sub(b.at(run.Tick))
	if run.Old {
		limit = b.deadline
		if next := b.schedule.Next(h.tick.In(b.jobs.cron.Location())); !next.IsZero() {
			limit = max(limit, b.at(next).Sub(b.at(h.tick)))
		}
	}
	return min(left, limit-late), nil
}

// writePause is the pause between two looks for the record of a run that has begun.
const writePause = 250 * time.Millisecond

// giveUp leaves a tick to the next process that finds it. Unless the job is removed or Jobs are
// closed, this process asks again itself.
func (b *job) giveUp(h *held, err error) {
	lost := h.lease.Context().Err() != nil
	h.release()
	if b.leaving.Err() != nil {
		return
	}
	if !lost {
		b.cannot(h.tick, err)
		h.here.end()
		select { // the store answers, but not about this
		case <-time.After(lookFirst):
		case <-b.leaving.Done():
		}
	}
	b.retry(h.tick)
}

// leaveOut ends a tick without a run.
func (b *job) leaveOut(h *held, skipped, reason string) {
	now := b.now().UTC()
	r := Record{Tick: h.tick.UTC(), Result: Skipped, Who: b.who, Fence: h.lease.Fence(), Start: now, End: now, Reason: reason}
	b.put(r, h)
	b.notify(r, skipped)
	h.complete()
	b.finish(h.tick)
}

// keep puts a run on record, and leaves its tick done, or to another process. ctx is that of the
// run. If the record is that the run has not begun, begun is false.
func (b *job) keep(ctx context.Context, h *held, own *guard.Lease, r Record, begun bool) {
	if h == nil { // by hand
		b.put(r)
		b.notify(r, "")
		return
	}
	leave := h.lease.Release
	// A store that cannot be asked shows in the hooks of the lease.
	if r.Result == Ran || r.Result == Skipped || begun && !b.rerun {
		leave = h.lease.Complete
	}
	onRecord := own.Valid()
	if onRecord {
		b.put(r, h)
	}
	// In a process that was paused, the context can be behind.
	if lost := leave(ctx); errors.Is(lost, guard.ErrLost) && (r.Result == Ran || !onRecord && r.Result != Lost) {
		r.Result, r.Reason, onRecord = Lost, lost.Error(), false
	}
	if !onRecord {
		b.put(r)
	}
	b.notify(r, "")
}

// call calls the function, under a lease if there is one, and records the run when the function has
// ended, even by a panic, which propagates. h is the tick, or nil.
func (b *job) call(ctx context.Context, own *guard.Lease, r entry, h *held) (err error) {
	if b.overlap == Allow && b.longest > 0 { // there is no lease of the job that would end it
		bounded, cancel := context.WithTimeoutCause(ctx, b.longest, &guard.LostError{Key: b.runKey(), Fence: r.Fence, Reason: guard.LossMaxHold})
		defer cancel()
		ctx = bounded
	}
	ctx = context.WithValue(ctx, runContext{b}, true)
	r.Result, r.Who, r.Start = Running, b.who, b.now().UTC()
	defer b.recordBeginning(r)()
	run := ctx // with what the hooks put in
	// writing the record may have taken longer than the lease lasts
	begun, returned := ctx.Err() == nil, false
	defer func() {
		r.Result, r.Reason = resultOf(ctx, returned, err)
		r.End = b.now().UTC()
		b.keep(run, h, own, r.Record, begun)
	}()
	f := func(ctx context.Context) error {
		run = ctx
		err = b.f(ctx)
		return err
	}
	switch {
	case !begun:
		err = context.Cause(ctx)
	case own == nil:
		_ = f(ctx)
	default:
		_ = own.Run(ctx, f) // the code below finds out whether the lease was lost
	}
	returned = true
	return err
}

// resultOf says how a run has ended.
func resultOf(ctx context.Context, returned bool, err error) (Result, string) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch {
	case errors.Is(context.Cause(ctx), guard.ErrLost):
		return Lost, fmt.Sprint(context.Cause(ctx))
	case !returned:
		return Failed, "it did not return: it panicked, or ended its goroutine"
	case errors.Is(err, guard.ErrDone):
		return Skipped, reason
	case err != nil:
		return Failed, reason
	}
	return Ran, ""
}

type tickContext struct{}

// runContext is the key of a value in the context of a run of the job.
type runContext struct{ job *job }

// Tick returns the tick for which a job runs, in UTC, and false if ctx is not that of a job, or if
// the job runs by hand.
func Tick(ctx context.Context) (time.Time, bool) {
	tick, ok := ctx.Value(tickContext{}).(time.Time)
	return tick, ok
}
