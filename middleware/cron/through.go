package guardcron

import (
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"
)

// throughCron makes the Cron run f now, as it runs a job that is due: within its chain, which may
// have a cron.Recover, and so that cron.Stop waits for it. It returns when f has returned. If the
// Cron was stopped, it returns at once, and does not run f.
func (b *job) throughCron(f func()) {
	var taken atomic.Bool
	now := &atOnce{}
	begun, ended := make(chan struct{}), make(chan struct{})
	c := b.jobs.cron
	id := c.Schedule(now, cron.FuncJob(func() {
		if !taken.CompareAndSwap(false, true) {
			return
		}
		close(begun)
		defer close(ended)
		f()
	}))
	c.Entry(id) // if the Cron runs, it answers when it has asked for the next tick of the entry
	if now.asked.Load() {
		// A chain may leave a job out.
		timer := time.NewTimer(max(b.deadline, time.Second))
		defer timer.Stop()
		select {
		case <-begun:
		case <-b.leaving.Done():
		case <-timer.C:
		}
	}
	c.Remove(id)
	if !taken.CompareAndSwap(false, true) {
		<-ended
	}
}

// cronRuns reports whether the Cron is started, and not stopped.
func (b *job) cronRuns() bool {
	none := &atOnce{never: true}
	c := b.jobs.cron
	id := c.Schedule(none, cron.FuncJob(func() {}))
	c.Entry(id)
	c.Remove(id)
	return none.asked.Load()
}

// atOnce is a schedule with one tick, which is now, or with none.
type atOnce struct {
	never bool
	asked atomic.Bool
}

func (a *atOnce) Next(t time.Time) time.Time {
	if a.asked.CompareAndSwap(false, true) && !a.never {
		return t
	}
	return time.Time{}
}
