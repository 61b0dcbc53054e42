package guardcron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/robfig/cron/v3"
)

// Wrapper returns a cron.JobWrapper for one entry of an existing chain, where AddFunc cannot be
// used. It takes the schedule of the entry, of which cron tells a wrapper nothing:
//
//	schedule, err := cron.ParseStandard("0 3 * * *")
//	wrapper, err := jobs.Wrapper("nightly-report", schedule)
//	c.Schedule(schedule, cron.NewChain(cron.Recover(log), wrapper).Then(job))
//
// When the entry fires, the newest tick of the schedule is run, unless it is later than the start
// deadline. Ticks for which no process was up are neither caught up with nor reported as missed. A
// run that takes over from a process that has died is outside of the entry's own chain: its panic
// is recorded and goes no further.
//
// It is for one job: to wrap another one panics. A name that another job has is an error, as are
// options that cannot work.
func (j *Jobs) Wrapper(name string, schedule cron.Schedule, opts ...Option) (cron.JobWrapper, error) {
	b, err := j.newJob(name, schedule, func(context.Context) error { return errors.New("it wraps no job") }, opts)
	if err != nil {
		return nil, fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	b.wrapped = true
	b.seen = b.now().Add(-2 * b.longestGap) // for the newest tick to be after it
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
		return &wrapped{job: b}
	}, nil
}

// wrapped is the job of an entry of which only the schedule is known.
type wrapped struct {
	job    *job
	begins sync.Once
}

// Run implements cron.Job.
func (w *wrapped) Run() {
	b := w.job
	if !b.jobs.begin() {
		return
	}
	defer b.jobs.end()
	if b.leaving.Err() != nil {
		return
	}
	b.mu.Lock()
	seen := b.seen
	b.mu.Unlock()
	w.begins.Do(b.lookAgain) // which announces the job
	come := b.come(seen, b.now()).ticks
	if len(come) == 0 {
		return
	}
	tick := come[len(come)-1]
	b.mu.Lock()
	b.seen = b.at(tick)
	b.mu.Unlock()
	b.fire(tick, false)
}
