package guardcron

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// A job is one entry. To cron it is both the schedule, which knows the ticks, and the job, which
// is not told them.
type job struct {
	settings

	jobs     *Jobs
	name     string
	schedule cron.Schedule
	location *time.Location // the schedule's
	f        func(ctx context.Context) error
	wrapped  bool // by Wrapper

	leaving context.Context // ends when Jobs are closed: who waits leaves
	leave   context.CancelFunc

	mu      sync.Mutex
	seen    time.Time      // the ticks up to here have been seen to by this process
	watched map[int64]bool // the ticks that it is seeing to, in milliseconds
	waits   bool           // it waits for its turn to catch up
}

func (j *Jobs) newJob(name string, schedule cron.Schedule, f func(ctx context.Context) error, opts []Option) (*job, error) {
	b := &job{settings: j.set, jobs: j, name: name, schedule: schedule, f: f, watched: map[int64]bool{}}
	b.lease, b.missed, b.observed = slices.Clip(b.lease), slices.Clip(b.missed), slices.Clip(b.observed)
	refused.Apply(&b.List, &b.settings, opts)
	if f == nil {
		b.Refuse("f", nil, "must not be nil")
	}
	switch {
	case name == "":
		b.Refuse("name", `""`, "must not be empty")
	case strings.Contains(name, "@"):
		b.Refuse("name", fmt.Sprintf("%q", name), "must not have an @ in it, which stands before a tick")
	}
	if schedule == nil {
		b.Refuse("schedule", nil, "must not be nil")
	} else {
		b.schedule, b.location = ticks.Align(schedule), j.cron.Location()
		// as it is with CRON_TZ
		if spec, ok := schedule.(*cron.SpecSchedule); ok && spec.Location != time.Local {
			b.location = spec.Location
		}
		b.checkWindow(j.now().In(j.cron.Location()))
	}
	if b.Err != nil {
		return nil, b.Err
	}
	if _, err := j.guard.Wrap(b.runKey(), func(context.Context) error { return nil }, b.leaseOptions(0, append(b.runOptions(b.runKey()), guard.WithOnce(b.window))...)...); err != nil {
		return nil, err
	}
	b.leaving, b.leave = context.WithCancel(context.Background())
	return b, nil
}

// checkWindow looks whether the window fits the schedule, and chooses one if there is none.
func (b *job) checkWindow(now time.Time) {
	at := b.schedule.Next(now)
	if at.IsZero() {
		b.Refuse("schedule", nil, "never fires in the next five years")
		return
	}
	longest, shortest := ticks.Longest(b.schedule, at), time.Duration(0)
	if b.local {
		shortest = localWindow
	}
	switch {
	case b.window == 0:
		b.window = max(MinTickMemory, shortest, 2*longest, 2*b.deadline, 2*b.longest)
	case b.window < longest:
		b.Refuse("WithTickMemory", b.window, fmt.Sprintf("must not be shorter than the time between two ticks, %v", longest))
	case b.window < shortest:
		b.Refuse("WithTickMemory", b.window, fmt.Sprintf("must not be shorter than %v with WithLocalTicks", shortest))
	}
	if b.longest >= b.window {
		b.Refuse("WithMaxHold", b.longest, fmt.Sprintf("must be shorter than the window of %v", b.window))
	}
	if b.deadline >= b.window {
		b.Refuse("WithStartDeadline", b.deadline, fmt.Sprintf("must be shorter than the window of %v", b.window))
	}
}

// runKey is the key that a run of the job holds, and tickKey that of a tick.
func (b *job) runKey() string { return "cron:" + b.name }

func (b *job) tickKey(tick time.Time) string {
	if b.local {
		return b.runKey() + "@" + tick.In(b.location).Format("2006-01-02T15:04:05.999999999")
	}
	return b.runKey() + "@" + tick.UTC().Format(time.RFC3339Nano)
}

func (b *job) leaseOptions(wait time.Duration, more ...guard.Option) []guard.Option {
	return append(append(slices.Clip(b.lease), guard.WithName(b.name), guard.WithWait(max(wait, 0))), more...)
}

// runOptions are what the lease of the job has more. The longest run bounds that one only: who
// loses the lease of a tick cannot end the tick, and others would run it again.
func (b *job) runOptions(label string) []guard.Option {
	opts := []guard.Option{guard.WithLabel(label)}
	if b.longest > 0 {
		opts = append(opts, guard.WithMaxHold(b.longest))
	}
	return opts
}

// now returns the time in the location of the Cron. It has no monotonic reading: ticks are
// instants of the wall clock.
func (b *job) now() time.Time { return b.jobs.now().Round(0).In(b.jobs.cron.Location()) }

// Next implements cron.Schedule. cron asks when it starts, and after each firing.
func (b *job) Next(t time.Time) time.Time {
	b.mu.Lock()
	first := b.seen.IsZero()
	if first {
		b.seen = b.now()
	}
	b.mu.Unlock()
	if first {
		b.jobs.inBackground(b.catchUpAtStart)
	}
	ahead := time.Duration(b.jobs.ahead.Load())
	next := b.schedule.Next(t.Add(ahead))
	if next.IsZero() {
		return next
	}
	return next.Add(-ahead)
}

// Run implements cron.Job.
func (b *job) Run() {
	if !b.jobs.begin() {
		return
	}
	defer b.jobs.end()
	for _, tick := range b.due() {
		b.see(tick)
	}
}

// due returns the ticks that have come since the last firing: one, unless this process was late.
// Of those that are too late to start it is the newest, for which somebody may have to say so.
func (b *job) due() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	come := b.between(b.seen, now)
	if len(come) == 0 { // the clock was set back
		return nil
	}
	newest := len(come) - 1
	b.seen = come[newest]
	first := slices.IndexFunc(come, func(t time.Time) bool { return now.Sub(t) <= b.deadline })
	if first < 0 {
		first = newest
	}
	return come[first:]
}
