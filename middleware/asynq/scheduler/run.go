package guardscheduler

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// The marks of an entry, in seconds since 1970, in the store. Those of a spec have its fingerprint
// behind them: a program can register several specs for one task.
const (
	// newestTick is the tick of the spec up to which its ticks need no care.
	newestTick = "newest tick "
	// sinceSpec is when the entry got the spec.
	sinceSpec = "since "
	// newestSince is when the entry got its newest spec.
	newestSince = "newest since"
)

const (
	// retryPause is how long a process waits before it tries again after an error of the store or
	// the queue.
	retryPause = time.Second
	// longestSleep is how soon a process notices that its clock was set.
	longestSleep = 10 * time.Second
)

// run looks after an entry until ctx ends.
func (r *runner) run(ctx context.Context, e *entry) {
	for ctx.Err() == nil {
		err := r.load(ctx, e)
		if err == nil {
			err = r.serve(ctx, e)
		}
		pause := retryPause + rand.N(retryPause/4) //nolint:gosec // jitter
		if err == nil {
			next := e.schedule.Next(e.last.In(r.location))
			if next.IsZero() {
				next = r.now().Add(longestSleep) // there is none in five years
			}
			pause = min(next.Sub(r.now()), longestSleep)
		}
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// load reads the mark of the entry from the store, once.
func (r *runner) load(ctx context.Context, e *entry) error {
	if e.loaded {
		return nil
	}
	if err := r.find(ctx, e); err != nil {
		r.reportOnce(e, e.since, err)
		return err
	}
	if e.last.After(e.since) {
		e.last = e.since // the mark of a clock that is ahead
	}
	e.loaded = true
	return nil
}

// find sets e.last to the newest tick that was handled, but not to one before the entry had this
// spec. A new spec begins when it was registered. So does a spec that is back after another one:
// it has no ticks in between.
func (r *runner) find(ctx context.Context, e *entry) error {
	since, err := r.ledger.Raise(ctx, e.ledgerName(), sinceSpec+e.print, 0)
	if err != nil {
		return err
	}
	newest, err := r.ledger.Raise(ctx, e.ledgerName(), newestSince, 0)
	if err != nil {
		return err
	}
	if since == 0 || newest > since && r.isOnlySpec(e) {
		since = max(newest, e.since.Unix())
		if err := r.begin(ctx, e, since); err != nil {
			return err
		}
	}
	e.last = time.Unix(since, 0)
	if err := r.refresh(ctx, e); err != nil {
		return err
	}
	if e.floor.IsZero() || e.schedule.Next(e.last.In(r.location)).After(e.floor) {
		return nil
	}
	e.last = e.floor
	return r.begin(ctx, e, e.floor.Unix())
}

// begin makes the entry begin anew. If the process dies halfway, the next one begins it again.
func (r *runner) begin(ctx context.Context, e *entry, since int64) error {
	_, err := r.ledger.Raise(ctx, e.ledgerName(), newestSince, since)
	if err == nil {
		_, err = r.ledger.Raise(ctx, e.ledgerName(), sinceSpec+e.print, since)
	}
	return err
}

func (e *entry) ledgerName() string { return "asynq-schedule:" + e.id }

// refresh moves e.last to the mark in the store.
func (r *runner) refresh(ctx context.Context, e *entry) error { return r.raise(ctx, e, time.Time{}) }

// raise moves the entry's mark to a tick.
func (r *runner) raise(ctx context.Context, e *entry, tick time.Time) error {
	was, err := r.ledger.Raise(ctx, e.ledgerName(), newestTick+e.print, max(0, tick.Unix()))
	if err != nil {
		return err
	}
	for _, t := range []time.Time{tick, time.Unix(was, 0)} {
		if t.After(e.last) && !t.After(r.now()) {
			e.last = t
		}
	}
	return nil
}

// serve enqueues what is due. An error means that it has to be tried again.
func (r *runner) serve(ctx context.Context, e *entry) error {
	d := r.due(e)
	if d.late || d.missed > 0 || !e.reported.IsZero() { // other processes may have handled them
		if err := r.raise(ctx, e, e.reported); err != nil {
			r.reportOnce(e, d.last, err)
			return err
		}
		e.reported = time.Time{}
		d = r.due(e)
	}
	for ; d.missed > 0; d = r.due(e) {
		if err := r.giveUp(ctx, e); err != nil {
			r.reportOnce(e, d.last, err)
			return err
		}
	}
	for _, tick := range d.run {
		if err := r.enqueue(ctx, e, tick); err != nil {
			return err
		}
		e.last = tick
		// If it fails, the next tick's does it. Until then, the markers of the ticks keep.
		_ = r.raise(ctx, e, tick)
	}
	return nil
}

func (r *runner) due(e *entry) due {
	return dueTicks(e.schedule, e.last, r.now().In(r.location), r.deadline, r.catchUp)
}

// giveUp reports the ticks that are too old, and then moves the mark past them. A lease keeps
// other processes from reporting them as well. A process that dies before it has moved the mark,
// or whose store does not answer then, leaves them to others, which report them again: none is
// lost.
func (r *runner) giveUp(ctx context.Context, e *entry) error {
	opts := append(r.leaseOptions(e.kind()), guard.WithOnce(0))
	return r.guard.Do(ctx, "asynq-missed:"+e.id, func(ctx context.Context) error {
		if err := r.refresh(ctx, e); err != nil {
			return err
		}
		d := r.due(e)
		if d.missed == 0 {
			return nil
		}
		r.report(e, &MissedError{Type: e.task.Type(), Spec: e.spec, First: d.first, Last: d.last, Ticks: d.missed})
		e.last, e.reported = d.last, d.last
		err := r.raise(ctx, e, d.last)
		if err == nil {
			e.reported = time.Time{}
		}
		return err
	}, opts...)
}
