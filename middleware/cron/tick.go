package guardcron

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// see sees to a tick: it is run here, or has been, or is being, elsewhere.
func (b *job) see(tick time.Time) {
	start := b.now().UTC()
	var done *guard.DoneError
	if errors.As(b.watch(tick, b.deadline-b.now().Sub(tick), b.decide), &done) {
		b.report(Record{Outcome: elsewhere, Start: start, End: b.now().UTC()}, done.Label, skippedDone)
	}
}

// label says which tick a lease is for, and who has it.
func (b *job) label(tick time.Time) string { return b.tickKey(tick) + " " + b.jobs.who }

// decide is called with the lease of a tick: it runs it, or leaves it out. One that was begun is
// not left out because a later one has begun meanwhile.
func (b *job) decide(ctx context.Context, tick time.Time, lease *guard.Lease, again bool) {
	b.reach(ctx, tick)
	late := b.now().Sub(tick)
	if late > b.deadline && b.settings.catchUp == NoCatchUp {
		b.miss(ctx, tick, lease, late)
		return
	}
	var wait time.Duration
	switch {
	case late > b.deadline:
		wait = b.deadline // it is caught up with
	case b.overlap == Wait || again:
		wait = b.deadline - late
	}
	b.start(ctx, tick, lease, wait)
}

// miss ends a tick that is too late.
func (b *job) miss(ctx context.Context, tick time.Time, lease *guard.Lease, late time.Duration) {
	b.leaveOut(ctx, tick, lease, Missed, skippedMissed, fmt.Sprintf("nobody has finished it, or been there to start it, until %v after it", late.Round(time.Millisecond)))
}

// leaveOut ends a tick without a run.
func (b *job) leaveOut(ctx context.Context, tick time.Time, lease *guard.Lease, outcome Outcome, skipped, reason string) {
	now := b.now().UTC()
	b.record(Record{Tick: tick.UTC(), Outcome: outcome, Who: b.jobs.who, Fence: lease.Fence(), Start: now, End: now, Reason: reason}, skipped)
	_ = lease.Complete(ctx) // the marker may be missing then: the next one leaves it out again
}

// start runs a tick, unless the job is paused, or runs, and goes on doing so for longer than it
// may wait.
func (b *job) start(ctx context.Context, tick time.Time, lease *guard.Lease, wait time.Duration) {
	switch paused, err := b.jobs.paused(ctx, b.name); {
	case err != nil: // a job that may be paused does not run; the tick is for who finds it next
		if ctx.Err() == nil && b.leaving.Err() == nil {
			b.cannot(tick, err)
		}
		_ = lease.Release(ctx)
		return
	case paused:
		b.leaveOut(ctx, tick, lease, Skipped, skippedPaused, "the job is paused")
		return
	}
	if b.overlap == Allow {
		b.run(ctx, tick, lease, lease)
		return
	}
	own, end, err := b.enter(ctx, tick, wait)
	switch {
	case err == nil:
		defer end()
		defer func() { _ = own.Release(ctx) }() // it ends by itself otherwise
		b.run(own.Context(), tick, lease, own)
	case errors.Is(err, guard.ErrBusy):
		// hooks have been told that the job is busy
		b.leaveOut(ctx, tick, lease, Skipped, "", err.Error())
	default:
		// Jobs were closed, the lease of the tick was lost, or the store cannot be asked: it is
		// for who finds it next
		if ctx.Err() == nil && b.leaving.Err() == nil {
			b.cannot(tick, err)
		}
		_ = lease.Release(ctx)
	}
}

// enter takes the lease of the job. One that is held for this very tick is that of a process which
// has died, and ends soon.
func (b *job) enter(ctx context.Context, tick time.Time, wait time.Duration) (*guard.Lease, func(), error) {
	for {
		own, end, err := b.acquire(ctx, b.runKey(), wait, b.runOptions(b.label(tick))...)
		var busy *guard.BusyError
		if errors.As(err, &busy) && strings.HasPrefix(busy.Label, b.tickKey(tick)+" ") && ctx.Err() == nil {
			wait = untilOver(busy)
			continue
		}
		return own, end, err
	}
}

// run runs a tick under its lease, and ends it. own is the lease of the job, or that of the tick
// again. ctx ends with any of them.
func (b *job) run(ctx context.Context, tick time.Time, lease, own *guard.Lease) {
	r := Record{Tick: tick.UTC(), Fence: guard.Fence(ctx)}
	_ = b.call(context.WithValue(ctx, tickContext{}, tick.UTC()), own, r, func(ctx context.Context, o Outcome, begun bool) error {
		// A store that cannot be asked shows in the hooks of the lease.
		if o == Ran || begun && !b.rerun {
			return lease.Complete(ctx)
		}
		return lease.Release(ctx)
	})
}

// byHand runs the job for no tick.
func (b *job) byHand(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(guard.ErrReleased)
	defer context.AfterFunc(b.jobs.ctx, func() { cancel(errClosed) })()
	r := Record{}
	var own *guard.Lease
	if b.overlap != Allow {
		var wait time.Duration
		if b.overlap == Wait {
			wait = guard.Forever
		}
		lease, end, err := b.acquire(ctx, b.runKey(), wait, b.runOptions(b.runKey()+" by hand "+b.jobs.who)...)
		if err != nil {
			return fmt.Errorf("guardcron: job %q: %w", b.name, err)
		}
		defer end()
		defer func() { _ = lease.Release(ctx) }() // it ends by itself otherwise
		own, ctx, r.Fence = lease, lease.Context(), lease.Fence()
	}
	return b.call(ctx, own, r, func(context.Context, Outcome, bool) error { return nil })
}

// call calls the function, under a lease if there is one, and records it. ended is called with its
// context when it has ended, also by a panic, which passes as it is, and may know that the lease
// was lost: the context of a process that was paused can be behind.
func (b *job) call(ctx context.Context, own *guard.Lease, r Record, ended func(ctx context.Context, o Outcome, begun bool) error) (err error) {
	if b.overlap == Allow && b.longest > 0 { // there is no lease of the job that would end it
		bounded, cancel := context.WithTimeoutCause(ctx, b.longest, &guard.LostError{Key: b.runKey(), Fence: r.Fence, Reason: guard.LossMaxHold})
		defer cancel()
		ctx = bounded
	}
	r.Outcome, r.Who, r.Start = Running, b.jobs.who, b.now().UTC()
	b.record(r, "")
	run := ctx // with what the hooks put in
	// to write it down may have taken longer than the lease lasts
	begun, returned := ctx.Err() == nil, false
	defer func() {
		r.Outcome, r.Reason = outcome(ctx, returned, err)
		r.End = b.now().UTC()
		if lost := ended(run, r.Outcome, begun); errors.Is(lost, guard.ErrLost) && r.Outcome != Lost {
			r.Outcome, r.Reason = Lost, lost.Error()
		}
		b.record(r, "")
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
		_ = own.Run(ctx, f) // that the lease was lost is found out below
	}
	returned = true
	return err
}

// outcome says how a run has ended.
func outcome(ctx context.Context, returned bool, err error) (Outcome, string) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch {
	case errors.Is(context.Cause(ctx), guard.ErrLost):
		return Lost, fmt.Sprint(context.Cause(ctx))
	case !returned:
		return Panicked, "it did not return"
	case err != nil:
		return Failed, reason
	}
	return Ran, ""
}

type tickContext struct{}

// Tick returns the tick for which a job runs, in UTC, and false if ctx is not that of a job, or of
// one that runs by hand.
func Tick(ctx context.Context) (time.Time, bool) {
	tick, ok := ctx.Value(tickContext{}).(time.Time)
	return tick, ok
}
