package guardasynq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// park remembers the task under the ID under which it will come back. What it has waited in its
// worker does not count.
func (d *delivery) park(id string) {
	d.m.parked.add(d.identity, parkedTask{queue: d.queue, id: id, position: d.position, until: time.Now().Add(max(d.m.every, longestDelay) * 5 / 4)})
}

// handOff brings back a task that waits for the key, now that a run has ended. It returns in time
// for asynq to learn of the task's end before the deadline. What it has begun then ends by itself,
// even if asynq's Redis does not answer.
func (d *delivery) handOff(since time.Time) {
	ends, ok := d.ctx.Deadline()
	if !ok {
		d.bringBack(since)
		return
	}
	brought := make(chan struct{})
	go func() {
		defer close(brought)
		d.bringBack(since)
	}()
	late := time.NewTimer(beforeEnd(ends))
	defer late.Stop()
	select {
	case <-brought:
	case <-late.C:
	}
}

// bringBack does not bring a task if watch has noticed the end first and brought one since. A task
// that waited for the key in a worker of this process runs now, and brings the next one itself.
func (d *delivery) bringBack(since time.Time) {
	if d.m.busy == Coalesce {
		d.bringFollowUp()
	}
	d.ahead.Wait()
	if !d.hasAhead && !d.hasNext {
		d.m.bringNext(d.identity, since)
	}
}

// bringAhead brings the next task of the key before this run ends. That task waits in an idle
// worker, because asynq takes a moment to give it to one. A task that already waits brings the
// next one itself.
func (d *delivery) bringAhead() {
	if d.m.waitsForKeys() && d.server != nil && d.server.hasRoom() {
		d.ahead.Go(func() { d.hasAhead = !d.m.waiters.any(d.identity) && d.m.bringNext(d.identity, time.Now()) })
	}
}

// waitsForKeys reports whether tasks wait in workers before they are postponed.
func (m *middleware) waitsForKeys() bool { return m.busy == RetryLater && m.wait != 0 }

// bringNext brings the first task that can be brought, unless another one was brought since. It
// reports whether there was one. So if two calls learn of the end of one run, they bring one task,
// rather than two that might come in any order.
func (m *middleware) bringNext(key string, since time.Time) bool {
	for {
		task, ok := m.parked.next(key, since)
		if !ok || m.bring(task) {
			return ok
		}
		since = task.broughtAt
	}
}

// After a run elsewhere, a task that waits in a worker, here or in another process, goes first: it
// has the key after freedPause. asynq takes a moment to give a task that was brought to a worker,
// which can be in another process.
const (
	freedPause   = 5 * time.Millisecond
	broughtPause = 100 * time.Millisecond
	askPause     = time.Second // even on a busy machine
)

// watch brings the tasks of a key when runs of other processes end. The first call comes when the
// subscription begins, and says nothing about a run.
func (m *middleware) watch(key string) (stop func()) {
	began := false
	return m.guard.Adapter().Watch(key, func(ctx context.Context) {
		m.freed(ctx, key, began)
		began = true
	}, m.opts...)
}

// freed is called when the key may be free. If it is, one of its tasks is brought back. If a run
// has ended and another one has begun, one task is brought to wait in a worker, if this process
// has an idle one. A store that does not tell whether the key is free is taken at its word that a
// run has ended.
func (m *middleware) freed(ctx context.Context, key string, ended bool) {
	// when the task that was brought last was first seen with a worker
	var active, asked time.Time
	for pause := freedPause + rand.N(freedPause); pause > 0; { //nolint:gosec // jitter
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		asked = time.Now()
		last, more := m.parked.brought(key)
		if !more || m.waiters.any(key) {
			return
		}
		ago := asked.Sub(last.broughtAt)
		if pause = broughtPause - ago; pause <= 0 && m.goesFirst(last, ago, &active) {
			pause = broughtPause
		}
	}
	if ended && m.isIdle() {
		m.bringNext(key, asked)
		return
	}
	switch err := m.look(ctx, key); {
	case errors.Is(err, guard.ErrBusy):
		m.parked.lookAgain(key, leaseLeft(err))
	case err == nil || ended && ctx.Err() == nil:
		m.bringNext(key, asked)
	}
}

// isIdle reports whether a task that is brought finds an idle worker, in which it can wait.
func (m *middleware) isIdle() bool {
	s := m.server.Load()
	return m.waitsForKeys() && s != nil && s.isIdle()
}

// goesFirst reports whether a task that was brought some time ago should get the key first: this
// process is about to make it pending, asynq still has to give it to a worker, or its worker may
// be about to ask for the key. active is when it was first seen with a worker.
func (m *middleware) goesFirst(task parkedTask, ago time.Duration, active *time.Time) bool {
	if !time.Now().Before(task.until) {
		return false // also if there is none
	}
	info, err := m.inspector.GetTaskInfo(task.queue, task.id)
	switch {
	case err != nil:
		return false
	case info.State == asynq.TaskStatePending:
		return true
	case info.State == asynq.TaskStateActive:
		if active.IsZero() {
			*active = time.Now()
		}
		return time.Since(*active) < askPause
	default:
		return isPostponed(info) && ago < askPause
	}
}

// isPostponed reports whether a task or its copy waits for its key, or for the store.
func isPostponed(info *asynq.TaskInfo) bool {
	return info.State == asynq.TaskStateScheduled || info.State == asynq.TaskStateRetry && waitsForKey(info)
}

// look returns ErrBusy if the key is busy, nil if it is free, and another error if the store does
// not tell. It does not take the key: with Skip and Fail, a task that comes meanwhile would end
// although nothing runs.
func (m *middleware) look(ctx context.Context, key string) error {
	return m.guard.Adapter().Look(ctx, key, m.opts...)
}

// The worker and asynq take a moment to put aside a task that has just been postponed.
const (
	bringTries = 20
	bringPause = 10 * time.Millisecond
)

// bring makes a postponed task pending, and reports whether it is that. It leaves alone what is no
// longer postponed: asynq would also run again what is completed or archived, and a failed task
// that waits for its retry.
func (m *middleware) bring(task parkedTask) bool {
	for range bringTries {
		info, err := m.inspector.GetTaskInfo(task.queue, task.id)
		if err != nil {
			return false
		}
		switch {
		case info.State == asynq.TaskStatePending:
			return true
		case isPostponed(info):
			return m.inspector.RunTask(task.queue, task.id) == nil
		case info.State != asynq.TaskStateActive:
			return false
		}
		time.Sleep(bringPause)
	}
	return false
}
