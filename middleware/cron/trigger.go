package guardcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
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
	return b.byHand(ctx)
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
// not up within a minute does not run it. It is an error if no process has announced such a job
// (see List), and if the backend does not notify (driver.Notifier). Its other errors are those of
// the store.
func (c *Control) Trigger(ctx context.Context, name string) error {
	err := func() error {
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
		return lease.Release(ctx) // which notifies
	}()
	if err != nil {
		return fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	return nil
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

// runIfTriggered runs the job if it was triggered a moment ago, and no process has run it since.
func (b *job) runIfTriggered() {
	at, err := b.jobs.ledger.Raise(b.jobs.ctx, ledgerName(b.name), triggers, 0)
	if err != nil || at == 0 || b.now().Sub(time.UnixMilli(at)).Abs() > triggerWindow {
		return
	}
	// The run's error is in its record, and it is not tried again.
	_ = b.jobs.guard.Do(b.jobs.ctx, fmt.Sprintf("%s:%d", triggerKey(b.name), at), func(ctx context.Context) error {
		ran := false
		b.throughCron(func() {
			ran = true
			_ = b.byHand(ctx)
		})
		if !ran {
			return errStopped // another process may run it
		}
		return nil
	}, b.jobs.guard.Adapter().Auxiliary(), guard.WithOnce(triggerMemory), guard.WithLimit(0), guard.WithLabel(b.who()))
}
