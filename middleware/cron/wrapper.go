package guardcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/robfig/cron/v3"
)

// Wrapper returns a cron.JobWrapper for one entry of an existing chain, if AddFunc cannot be used.
// It needs the schedule of the entry, which cron does not pass to a wrapper:
//
//	schedule, err := cron.ParseStandard("0 3 * * *")
//	wrapper, err := jobs.Wrapper("nightly-report", schedule)
//	c.Schedule(schedule, cron.NewChain(cron.Recover(log), wrapper).Then(job))
//
// Leave cron.SkipIfStillRunning and cron.DelayIfStillRunning out of the chain: WithBusy replaces
// them, in all processes.
//
// When the entry fires, the newest tick of the schedule is run, unless it is later than the start
// deadline. Ticks for which no process was up are neither caught up with nor reported as missed. A
// run that takes over from a process that has died is outside of the entry's own chain: its panic
// is recorded and goes no further.
//
// Two settings cannot work, and are refused. A cron.ConstantDelaySchedule, such as "@every 5m",
// counts from the start of each process, so that processes have no tick in common. Use AddFunc or
// Schedule instead, or a spec such as "*/5 * * * *". The entry fires without WithJitter, so the
// jitter must be 0; if New has set one, pass WithJitter(0).
//
// It is for one job: to wrap another one panics. A name that another job has is an error, as are
// options that cannot work. The job is announced (see List) when it is wrapped.
func (j *Jobs) Wrapper(name string, schedule cron.Schedule, opts ...Option) (cron.JobWrapper, error) {
	b, err := j.newJob(name, schedule, func(context.Context) error { return errors.New("it wraps no job") }, append(slices.Clip(opts), wrapping(schedule)))
	if err != nil {
		return nil, fmt.Errorf("guardcron: job %q: %w", name, err)
	}
	b.wrapped = true
	b.born = b.now()
	b.seen = b.born.Add(-2 * b.longestGap) // so that the newest tick is after it
	b.roused = b.born
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
		b.mu.Lock() // RunNow knows the job already
		b.f = func(context.Context) error { inner.Run(); return nil }
		b.mu.Unlock()
		b.lookAgain() // it announces the job
		b.jobs.started()
		return &wrapped{job: b}
	}, nil
}

// wrapping refuses what cannot work if only the schedule of an entry is known, and not when the
// entry fires.
func wrapping(schedule cron.Schedule) Option {
	return func(s *settings) {
		if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
			s.Refuse("schedule", every.Delay, "counts from the start of each process if it is wrapped: use AddFunc or Schedule of Jobs")
		}
		if s.jitter > 0 {
			s.Refuse("WithJitter", s.jitter, "must be 0 in a Wrapper, whose entry fires without it: use AddFunc or Schedule of Jobs")
		}
	}
}

// wrapped is the job of an entry of which only the schedule is known.
type wrapped struct{ job *job }

// Run implements cron.Job.
func (w *wrapped) Run() {
	b := w.job
	b.begins()
	if !b.jobs.begin() {
		return
	}
	defer b.jobs.end()
	if b.leaving.Err() != nil {
		return
	}
	b.mu.Lock()
	owes := len(b.owed) > 0 && !b.looking
	b.mu.Unlock()
	if owes {
		b.lookAgain()
	}
	now := b.now()
	come := b.come(b.seenAt(now), now).ticks
	if len(come) == 0 {
		return
	}
	tick := come[len(come)-1]
	b.mu.Lock()
	b.seen = b.at(tick)
	b.mu.Unlock()
	b.fire(tick, false)
}
