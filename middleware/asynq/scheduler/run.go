package guardscheduler

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	// retryPause is how long a process waits before it tries again after an error of the store or
	// the queue.
	retryPause = time.Second
	// longestSleep is how soon a process notices that its clock was set.
	longestSleep = 10 * time.Second
)

// run looks after an entry until ctx ends. It shares what it knows of ticks with package guardcron,
// and not the loop: there, the Cron of the user starts ticks, several run at a time, and old ones
// wait for current ones. Here, this goroutine enqueues them one after the other.
func (r *runner) run(ctx context.Context, e *entry) {
	for ctx.Err() == nil {
		err := r.load(ctx, e)
		if err == nil {
			err = r.serve(ctx, e)
		}
		pause := retryPause + rand.N(retryPause/4) //nolint:gosec // jitter
		if err == nil {
			next := e.remaining.Next(e.last.In(r.location))
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

// serve enqueues what is due. An error means that it has to be tried again.
func (r *runner) serve(ctx context.Context, e *entry) error {
	d := r.due(e)
	if d.late || d.missed > 0 || !e.reported.IsZero() { // other processes may have handled them
		err := r.raise(ctx, e, e.reported)
		if err == nil {
			err = r.read(ctx, e)
		}
		if err != nil {
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
	return dueTicks(e.remaining, e.last, r.now().In(r.location), r.deadline, r.catchUp)
}

// giveUp reports the ticks that are too old, and then moves the mark past them. A lease keeps
// other processes from reporting them as well. A process that dies before it has moved the mark,
// or whose store does not answer then, leaves them to others, which report them again: none is
// lost.
func (r *runner) giveUp(ctx context.Context, e *entry) error {
	opts := append(r.leaseOptions(e.task.Type()), guard.WithOnce(0))
	return r.guard.Do(ctx, "asynq-missed:"+e.id, func(ctx context.Context) error {
		if err := r.raise(ctx, e, time.Time{}); err != nil {
			return err
		}
		if err := r.read(ctx, e); err != nil {
			return err
		}
		d := r.due(e)
		if d.missed == 0 {
			return nil
		}
		first, last, n := e.contiguous(d)
		r.report(e, first, &MissedError{Type: e.task.Type(), Spec: e.spec, First: first, Last: last, Ticks: n})
		e.last, e.reported = last, last
		err := r.raise(ctx, e, last)
		if err == nil {
			e.reported = time.Time{}
		}
		return err
	}, opts...)
}

// contiguous returns the first of the missed ticks, as long as none that another spec has is
// between them. Of very many, it looks only at the oldest.
func (e *entry) contiguous(d due) (first, last time.Time, n int) {
	last = d.first
	for n = 1; n < d.missed; n++ {
		next := e.remaining.Next(last)
		if !next.Equal(e.remaining.Schedule.Next(last)) {
			return d.first, last, n
		}
		last = next
	}
	return d.first, d.last, n
}
