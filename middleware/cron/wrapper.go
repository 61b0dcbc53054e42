package guardcron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// Wrapper returns a cron.JobWrapper for one entry of an existing chain, where AddJob cannot be
// used:
//
//	wrapper, err := jobs.Wrapper("nightly-report", 24*time.Hour)
//	c.Schedule(schedule, cron.NewChain(cron.Recover(log), wrapper).Then(job))
//
// What it cannot know is the schedule, of which cron tells a wrapper nothing. It takes the nearest
// multiple of the period since 1970-01-01 00:00 UTC for the tick: so two ticks in less than a
// period are one, clocks may differ by less than half of it, and a start that late is taken for
// the next tick's. Nothing is caught up with, and nothing is found missed. The period is from one
// second to a year.
//
// It is for one job: to wrap another one panics. A name that another job has is an error, as are
// options that cannot work.
func (j *Jobs) Wrapper(name string, period time.Duration, opts ...Option) (cron.JobWrapper, error) {
	const year = 366 * 24 * time.Hour
	if period < time.Second || period > year || period%time.Second != 0 {
		return nil, fmt.Errorf("guardcron: job %q: %w", name, refused.Setting("period", period, "must be from one second to a year, in whole seconds"))
	}
	b, err := j.newJob(name, ticks.Every(period/time.Second), func(context.Context) error { return errors.New("it wraps no job") }, opts)
	if err != nil {
		return nil, fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	b.wrapped = true
	if err := j.add(b); err != nil {
		return nil, err
	}
	var once sync.Once
	return func(inner cron.Job) cron.Job {
		first := false
		once.Do(func() { first = true })
		if !first {
			panic(fmt.Sprintf("guardcron: the wrapper of job %q has wrapped another one: each entry needs one of its own", name))
		}
		b.f = func(context.Context) error { inner.Run(); return nil }
		return cron.FuncJob(func() {
			if !j.begin() {
				return
			}
			defer j.end()
			var wait time.Duration
			if b.overlap == Wait {
				wait = b.deadline
			}
			_ = b.watch(nearest(b.now(), period), b.deadline, func(ctx context.Context, tick time.Time, lease *guard.Lease, _ bool) {
				b.start(ctx, tick, lease, wait) // how late it is, nobody knows
			})
		})
	}, nil
}

// nearest returns the multiple of d since 1970 that is nearest to t.
func nearest(t time.Time, d time.Duration) time.Time {
	seconds := int64(d / time.Second)
	at := t.Add(d / 2).Unix()
	return time.Unix(at-at%seconds, 0).In(t.Location())
}
