package guardcron

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A taking is called with the lease of a tick. again says that somebody had it before, and has not
// ended it.
type taking func(ctx context.Context, tick time.Time, lease *guard.Lease, again bool)

// watch is take for as long as somebody else has the tick, also when it is too late to run it:
// should that one die, somebody has to say so. A tick is watched once. It returns what take has
// returned at last.
func (b *job) watch(tick time.Time, wait time.Duration, do taking) error {
	at := tick.UnixMilli()
	b.mu.Lock()
	watched := b.watched[at]
	b.watched[at] = true
	b.mu.Unlock()
	if watched {
		return nil
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watched, at)
	}()
	for {
		err := b.take(tick, wait, do)
		var busy *guard.BusyError
		if !errors.As(err, &busy) {
			return err
		}
		wait = untilOver(busy)
	}
}

// untilOver returns how long to wait for a lease that is not renewed any more.
func untilOver(busy *guard.BusyError) time.Duration { return max(busy.Left, 0) + time.Second }

// take calls do with the lease of a tick if this process gets it within the wait: nobody else has
// it, and nobody has ended it. An error says that what becomes of the tick is not known: a
// *guard.BusyError who has it, or that it was ended before: a *guard.DoneError. A tick that is too
// late is looked at once.
func (b *job) take(tick time.Time, wait time.Duration, do taking) error {
	again := false
	waits := guard.Hook{Wait: func(context.Context, guard.Event) { again = true }}
	lease, end, err := b.acquire(b.jobs.ctx, b.tickKey(tick), wait, guard.WithOnce(b.window), guard.WithLabel(b.label(tick)), guard.WithHook(waits), b.jobs.guard.Adapter().Auxiliary())
	switch {
	case err == nil:
		defer end()
		do(lease.Context(), tick, lease, again)
	case errors.Is(err, guard.ErrDone):
	case !errors.Is(err, guard.ErrBusy) && b.leaving.Err() == nil:
		b.cannot(tick, err)
	}
	return err
}

// acquire takes a lease, and gives up when the Jobs are closed. The context of the lease ends with
// end, which does not release it.
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

// cannot tells the observers that the store could not be asked. The tick may be run by others, who
// can ask it, or be found missed when it can be asked.
func (b *job) cannot(tick time.Time, err error) {
	now := b.now().UTC()
	r := Record{Job: b.name, Tick: tick.UTC(), Outcome: Missed, Who: b.jobs.who, Start: now, End: now, Reason: "here: " + err.Error()}
	told := r
	told.Outcome = unavailable
	b.report(told, "", string(unavailable))
	for _, f := range b.observed {
		contained(func() { f(r) })
	}
}
