package guardasynq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

// enqueue adds the task to the backlog, under the ID under which it will come back. What it has
// waited in its worker does not count.
func (d *delivery) enqueue(id string) {
	until := time.Now().Add(max(d.m.Delay, claim.LongestLease) * 5 / 4)
	d.m.backlog.add(d.Identity, d.id, waiter{queue: d.queue, id: id, until: until})
}

// wakeNext is called when the task is through with its worker. If it leaves its key free, it wakes
// the next task. It returns in time for asynq to learn of the task's end before the deadline. What
// it has begun then ends by itself, even if asynq's Redis does not answer.
func (d *delivery) wakeNext() {
	d.m.backlog.leave(d.Identity, d.id)
	if d.freed.IsZero() {
		return
	}
	wake := func() {
		if d.m.busy == Coalesce {
			d.wakeFollowUps()
		}
		d.m.wakeNext(d.Identity, d.freed)
	}
	ends, ok := d.ctx.Deadline()
	if !ok {
		wake()
		return
	}
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		wake()
	}()
	late := time.NewTimer(beforeEnd(ends))
	defer late.Stop()
	select {
	case <-woken:
	case <-late.C:
	}
}

// wakeNext wakes the first task of the key that can be woken, unless another one was woken since.
// It reports whether it woke one.
func (m *middleware) wakeNext(key string, since time.Time) bool {
	for {
		w, ok := m.backlog.next(key, since)
		if !ok {
			return false
		}
		woken := m.wake(w)
		m.backlog.woke(key, w.id)
		if woken {
			return true
		}
		since = w.woken
	}
}

// The pauses before a process looks at a key after a run. The process of the run wakes the next
// task itself, and asynq takes up to a TaskCheckInterval to give that task to a worker.
const (
	freedPause  = 25 * time.Millisecond
	comingPause = 50 * time.Millisecond
	maxComing   = time.Second // even on a busy machine
)

// watch wakes the tasks of a key when runs of other processes end. The first call comes when the
// subscription begins, and says nothing about a run.
func (m *middleware) watch(key string) (stop func()) {
	began := false
	return m.core.Watch(key, func(ctx context.Context) {
		m.freed(ctx, key, began)
		began = true
	})
}

// freed is called when the key may be free. If it is, and no task is coming, one is woken. If the
// store does not tell whether the key is free, one is woken if a run has ended.
func (m *middleware) freed(ctx context.Context, key string, ended bool) {
	for pause := freedPause + rand.N(freedPause); ; pause = comingPause { //nolint:gosec // jitter
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		looked := time.Now()
		err := m.core.Look(ctx, key)
		if err != nil && (!ended || ctx.Err() != nil || errors.Is(err, guard.ErrBusy)) {
			return
		}
		if !m.isComing(key) {
			m.wakeNext(key, looked)
			return
		}
	}
}

// isComing reports whether a task that was woken is about to ask for its key. Otherwise a second
// one could get the key first.
func (m *middleware) isComing(key string) bool {
	w, waking := m.backlog.last(key)
	switch ago := time.Since(w.woken); {
	case ago > maxComing:
		return false // also if there is none
	case waking, ago < taskCheckInterval:
		return true
	default:
		info, err := m.inspector.GetTaskInfo(w.queue, w.id)
		return err == nil && (info.State == asynq.TaskStatePending || info.State == asynq.TaskStateActive)
	}
}

// lookAt wakes a task of the key if the key is free, and looks again otherwise.
func (m *middleware) lookAt(key string) {
	// It does not take the key: with Skip and Fail, a task that comes meanwhile would end although
	// nothing runs.
	err := m.core.Look(context.Background(), key)
	switch {
	case errors.Is(err, guard.ErrBusy):
		m.backlog.lookAfter(key, claim.Left(err))
	case err == nil:
		m.wakeNext(key, time.Now())
	}
}

// The worker and asynq take a moment to set aside a task that was just postponed.
const (
	wakeTries = 20
	wakePause = 10 * time.Millisecond
)

// wake makes a postponed task pending, and reports whether it is that. It leaves alone what is no
// longer postponed: asynq would also run again what is completed or archived, and a failed task
// that waits for its retry.
func (m *middleware) wake(w waiter) bool {
	for range wakeTries {
		info, err := m.inspector.GetTaskInfo(w.queue, w.id)
		if err != nil {
			return false
		}
		switch {
		case info.State == asynq.TaskStatePending:
			return true
		case info.State == asynq.TaskStateScheduled, info.State == asynq.TaskStateRetry && waitsForKey(info):
			return m.inspector.RunTask(w.queue, w.id) == nil
		case info.State != asynq.TaskStateActive:
			return false
		}
		time.Sleep(wakePause)
	}
	return false
}
