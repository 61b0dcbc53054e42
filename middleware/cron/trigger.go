package guardcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

// RunNow runs a job by hand, in this process and for no tick, and returns the error of the job. It
// holds the lease of the job, as ticks do. If the job is running, RunNow returns guard.ErrBusy with
// Skip, waits until ctx ends with Wait, and runs at the same time with Allow. With the context of a
// run of the same job, it returns guard.ErrBusy also with Wait. The run is recorded.
func (j *Jobs) RunNow(ctx context.Context, name string) error {
	b, err := j.find(name)
	if err != nil {
		return err
	}
	if !j.begin() {
		return fmt.Errorf("guardcron: job %q: %w", name, &guard.ClosedError{Key: name})
	}
	defer j.end()
	_, err = b.byHand(ctx, false)
	return err
}

// byHand runs the job for no tick. If the error is that the run has not begun, begun is false. If
// tookOver, another process may have died in the run: its lease of the job ends soon.
func (b *job) byHand(ctx context.Context, tookOver bool) (begun bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(guard.ErrReleased)
	defer context.AfterFunc(b.jobs.ctx, func() { cancel(errClosed) })()
	var r entry
	var own *guard.Lease
	if b.overlap != Allow {
		if ctx.Value(runContext{b}) != nil { // it would join the lease of that run
			return false, fmt.Errorf("guardcron: job %q: it cannot run within its own run: %w", b.name, &guard.BusyError{Key: b.runKey(), Left: -1})
		}
		lease, err := b.enterByHand(ctx, tookOver)
		if err != nil {
			return false, fmt.Errorf("guardcron: job %q: %w", b.name, err)
		}
		defer func() { _ = lease.Release(ctx) }() // it ends by itself otherwise
		own, ctx, r.Fence = lease, lease.Context(), lease.Fence()
	}
	return true, b.call(ctx, own, r, nil)
}

// enterByHand takes the lease of the job.
func (b *job) enterByHand(ctx context.Context, tookOver bool) (*guard.Lease, error) {
	var wait time.Duration
	if b.overlap == Wait {
		wait = guard.Forever
	}
	acquire := b.acquire
	if tookOver {
		acquire = b.takeOver
	}
	return acquire(ctx, b.runKey(), wait, b.runOptions(b.runKey()+" by hand "+b.who)...)
}

// The store keeps when a job was last triggered, as a counter of milliseconds since 1970.
const triggers = "triggers"

const (
	// triggerWindow is how long after Trigger a process may begin the run.
	triggerWindow = time.Minute
	// triggerMemory is how long it is known which triggers have been handled.
	triggerMemory = 10 * triggerWindow
)

// Trigger has the job run by hand, and for no tick, in one of the processes that have it. It
// returns when they have been notified: the run shows in Records. As with RunNow, the job is not
// run if it is running, unless it has Wait or Allow, and a pause does not count. A process that is
// not up within a minute, or whose Cron is stopped, does not run it. If a process dies in the run,
// another one runs it again. Triggers that come before the run of an earlier one has begun may be
// one run. It is an error if no process has announced such a job
// (see List), and if the backend does not notify (driver.Subscriber). Its other errors, and by, are
// those of Pause.
func (c *Control) Trigger(ctx context.Context, name string, by inspect.By) error {
	return c.change(ctx, inspect.Operation{Action: inspect.ActionTrigger, Job: name}, by, func() error { return c.trigger(ctx, name) })
}

func (c *Control) trigger(ctx context.Context, name string) error {
	known, err := c.announced(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(known, func(j JobInfo) bool { return j.Name == name }) {
		return errors.New("no process has announced it")
	}
	if !c.guard.Adapter().Notifies() {
		return errors.New("the backend notifies nobody: use RunNow in a process that has the job")
	}
	// The counter only grows, and the clock of another caller may be ahead.
	last, err := c.ledger.Raise(ctx, ledgerName(name), triggers, 0)
	if err != nil {
		return err
	}
	if ahead := time.UnixMilli(last).Sub(c.now()); ahead >= triggerWindow {
		return fmt.Errorf("by the clock of this process, the last Trigger is %v from now: one of the clocks is wrong", ahead.Round(time.Second))
	}
	if _, err = c.ledger.Raise(ctx, ledgerName(name), triggers, max(c.now().UnixMilli(), last+1)); err != nil {
		return err
	}
	lease, err := c.guard.Acquire(ctx, triggerKey(name), c.guard.Adapter().Auxiliary(), guard.WithWait(triggerWindow), guard.WithLimit(0))
	if err != nil {
		return err
	}
	return lease.Release(ctx) // the release notifies the job
}

// triggerKey is the key whose release announces that a job was triggered.
func triggerKey(name string) string { return "cron:" + name + "@trigger" }

// watchTriggers runs the job when it is triggered, until the job is removed.
func (b *job) watchTriggers() {
	stop := b.jobs.guard.Adapter().Watch(triggerKey(b.name), func(context.Context) {
		b.jobs.inBackground(b.runIfTriggered)
	})
	context.AfterFunc(b.leaving, stop)
}

// runIfTriggered runs the job if it was triggered a moment ago, and no process has run it since. If
// the Cron is stopped, another process may run it, or this one if the Cron is started again.
func (b *job) runIfTriggered() {
	for over := time.After(triggerWindow); ; {
		err := b.runTriggered()
		switch {
		case err == nil, b.leaving.Err() != nil:
			return
		case errors.Is(err, errStopped):
			b.setTriggered(true) // first: it may be started now
			if !b.cronRuns() {
				return
			}
			b.setTriggered(false)
		}
		select {
		case <-time.After(lookFirst): // the store may answer then
		case <-over:
			return
		case <-b.leaving.Done():
			return
		}
	}
}

// setTriggered notes whether the job was triggered while the Cron was stopped.
func (b *job) setTriggered(to bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.triggered = to
}

// runTriggered is one attempt. An error means that the job was not run, and that others may run it.
func (b *job) runTriggered() error {
	at, err := b.ledger.Raise(context.WithoutCancel(b.jobs.ctx), ledgerName(b.name), triggers, 0)
	age := b.now().Sub(time.UnixMilli(at))
	if err != nil || at == 0 || age.Abs() > triggerWindow {
		return err
	}
	if !b.cronRuns() {
		return errStopped
	}
	lease, tookOver, err := b.takeTrigger(at, triggerWindow-age)
	if lease == nil {
		return err
	}
	ran := false
	b.throughCron(func() {
		ran = true // also if it panics
		var begun bool
		if begun, err = b.byHand(lease.Context(), tookOver); !begun && !errors.Is(err, guard.ErrBusy) {
			ran = false
		}
	})
	switch {
	case ran: // the run's error is in its record, and it is not tried again
		_ = lease.Complete(lease.Context()) // if it fails, the marker may be missing
		return nil
	case err == nil:
		err = errStopped
	}
	_ = lease.Release(lease.Context()) // it ends by itself otherwise
	return err
}

// takeTrigger acquires the lease of a trigger. It waits for a process that has it: that one may
// die, or its Cron may be stopped. The lease is nil if that process has run the job, or runs it.
func (b *job) takeTrigger(at int64, wait time.Duration) (lease *guard.Lease, tookOver bool, err error) {
	key := fmt.Sprintf("%s:%d", triggerKey(b.name), at)
	waits := guard.Hook{Wait: func(context.Context, guard.WaitEvent) { tookOver = true }}
	lease, err = b.takeOver(b.jobs.ctx, key, wait, guard.WithOnce(triggerMemory), guard.WithLimit(0), guard.WithLabel(b.who),
		guard.WithHook(waits), b.jobs.guard.Adapter().Auxiliary())
	if errors.Is(err, guard.ErrBusy) || errors.Is(err, guard.ErrDone) {
		err = nil
	}
	return lease, tookOver, err
}

// takeOver is acquire, and waits further for a process that may have died with the lease a moment
// ago.
func (b *job) takeOver(ctx context.Context, key string, wait time.Duration, opts ...guard.Option) (*guard.Lease, error) {
	lease, err := b.acquire(ctx, key, wait, opts...)
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		return b.acquire(ctx, key, untilOver(busy), opts...)
	}
	return lease, err
}
