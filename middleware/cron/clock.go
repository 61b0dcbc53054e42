package guardcron

import (
	"maps"
	"slices"
	"time"
)

const (
	// longestSleep is how soon a process notices that its clock was set, or that its host slept.
	longestSleep = 10 * time.Second
	// leastStep is by how much the clock is set at least.
	leastStep = time.Second
)

// watchClock has the Cron run what has come without it, until Jobs are closed. The Cron sleeps on
// the monotonic clock. If the wall clock is set, or the host sleeps, the Cron's timer is wrong
// until it fires.
func (j *Jobs) watchClock() {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	var next time.Time // nothing can be overdue before
	var starts int64   // j.starts when next was worked out
	slept, wall := time.Now(), j.now()
	for {
		select {
		case <-timer.C:
		case <-j.closing:
			return
		}
		now := j.now()
		step := now.Round(0).Sub(wall.Round(0)) - time.Since(slept)
		slept, wall = time.Now(), now
		if isSet := step.Abs() > leastStep; isSet || !now.Before(next) || j.starts.Load() != starts {
			starts = j.starts.Load()
			next = now.Add(j.rouseOverdue(isSet)).Round(0)
		}
		timer.Reset(min(longestSleep, max(next.Sub(now.Round(0)), 0)))
	}
}

// rouseOverdue has the Cron run what is overdue, and returns in which time nothing else can be.
func (j *Jobs) rouseOverdue(clockIsSet bool) time.Duration {
	j.mu.Lock()
	all := slices.Collect(maps.Values(j.jobs))
	j.mu.Unlock()
	next := 24 * time.Hour
	for _, b := range all {
		if clockIsSet {
			b.lookAtOwed()
		}
		left, ok := b.untilOverdue()
		switch {
		case !ok:
		case left > 0:
			next = min(next, left)
		default:
			b.rouse()
			next = min(next, longestSleep)
		}
	}
	return next
}

// lookAtOwed looks again at the ticks that are owed, because the clock was set.
func (b *job) lookAtOwed() {
	b.mu.Lock()
	owes := len(b.owed) > 0
	b.mu.Unlock()
	if owes {
		b.lookAgain()
	}
}

// untilOverdue returns for how long the Cron may take to run the next tick. It is false if the Cron
// has not begun with the job, or there is no next tick.
func (b *job) untilOverdue() (left time.Duration, ok bool) {
	now := b.now()
	seen := b.seenAt(now)
	b.mu.Lock()
	if b.roused.After(now) {
		b.roused = time.Time{} // by a clock that was wrong
	}
	begun, next := !b.born.IsZero(), b.next
	seen = later(seen, b.roused)
	if !b.nextAfter.Equal(seen) {
		next = time.Time{}
	}
	b.mu.Unlock()
	if !begun {
		return 0, false
	}
	if next.IsZero() {
		if next = b.startAfter(seen); next.IsZero() {
			return 0, false
		}
		b.mu.Lock()
		b.next, b.nextAfter = next, seen
		b.mu.Unlock()
	}
	return next.Add(min(restart, b.deadline/2)).Sub(now), true
}

// startAfter returns when the first tick starts that starts after an instant, or zero if there is
// none.
func (b *job) startAfter(from time.Time) time.Time {
	from = from.In(b.jobs.cron.Location())
	for tick := b.schedule.Next(from.Add(-b.jitter)); !tick.IsZero(); tick = b.schedule.Next(tick) {
		if at := b.at(tick); at.After(from) {
			return at
		}
	}
	return time.Time{}
}

// rouse has the Cron run a tick that is overdue, if it is not stopped.
func (b *job) rouse() {
	j := b.jobs
	starts := j.starts.Load()
	if j.stopped.Load() == starts { // nothing has started it since
		return
	}
	b.mu.Lock()
	busy := b.rousing
	b.rousing = true
	b.mu.Unlock()
	if busy {
		return
	}
	over := func() {
		b.mu.Lock()
		b.rousing = false
		b.mu.Unlock()
	}
	begins := j.inBackground(func() {
		defer over()
		if known, err := j.find(b.name); err != nil || known != b { // it was removed from the Cron
			return
		}
		now := b.now()
		if !b.throughCron(b.Run) {
			j.stopped.Store(starts)
			return
		}
		b.mu.Lock()
		b.roused = now // once is enough if a chain leaves the job out
		b.mu.Unlock()
	})
	if !begins {
		over()
	}
}
