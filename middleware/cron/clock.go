package guardcron

import (
	"maps"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// longestSleep is how soon a process notices that its clock was set, or that its host slept.
	longestSleep = 10 * time.Second
	// leastStep is by how much the clock is set at least.
	leastStep = time.Second
)

// restart is the least delay of a tick for which the Cron has not fired.
const restart = 2 * time.Second

// watchClock starts the ticks that have come without the Cron, until Jobs are closed. The Cron
// sleeps on the monotonic clock. If the wall clock is set, or the host sleeps, its timer is wrong
// until it fires.
func (j *Jobs) watchClock() {
	slept, wall := time.Now(), j.now()
	for wait := longestSleep; ; {
		select {
		case <-time.After(wait):
		case <-j.open.Done():
			return
		}
		now := j.now()
		step := now.Round(0).Sub(wall.Round(0)) - time.Since(slept)
		slept, wall = time.Now(), now
		j.mu.Lock()
		all := slices.Collect(maps.Values(j.jobs))
		j.mu.Unlock()
		wait = longestSleep
		for _, b := range all {
			if step.Abs() > leastStep {
				b.lookAtBacklog()
			}
			if left := b.untilOverdue(); left > 0 {
				wait = min(wait, left)
			} else {
				j.inBackground(b.serveIfStarted)
			}
		}
	}
}

// lookAtBacklog looks again at the pending ticks that no goroutine handles.
func (b *job) lookAtBacklog() {
	b.mu.Lock()
	behind := !b.looking && b.hasBacklog()
	b.mu.Unlock()
	if behind {
		b.lookAgain()
	}
}

// untilOverdue returns for how long the Cron may take to fire for the next tick: 0 or less if it
// has not fired for one that has come.
func (b *job) untilOverdue() time.Duration {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.born.IsZero() {
		return longestSleep
	}
	b.checkClock(now)
	if !b.nextAfter.Equal(b.seen) {
		b.next, b.nextAfter = b.startAfter(b.schedule, b.seen), b.seen
	}
	if b.next.IsZero() {
		return longestSleep
	}
	return b.next.Add(min(restart, b.deadline/2)).Sub(now)
}

// serveIfStarted is serve, unless the Cron is stopped, or the job was removed from it.
func (b *job) serveIfStarted() {
	if known, err := b.jobs.find(b.name); err == nil && known == b && b.cronRuns() {
		b.serve(nil)
	}
}

// startAfter returns when the first tick of a schedule, that of the job or less, starts that starts
// after an instant, or zero if there is none.
func (b *job) startAfter(schedule cron.Schedule, from time.Time) time.Time {
	from = from.In(b.jobs.cron.Location())
	for tick := schedule.Next(from.Add(-b.jitter)); !tick.IsZero(); tick = schedule.Next(tick) {
		if at := b.at(tick); at.After(from) {
			return at
		}
	}
	return time.Time{}
}
