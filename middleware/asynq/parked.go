package guardasynq

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// parked are the tasks that this process has postponed because their key was busy, in the order in
// which they came: when a run of the key ends here, the next of them is brought back at once. It
// is no more than a help: each comes back by itself when its time is up.
type parked struct {
	mu    sync.Mutex
	count int
	keys  map[string]*parkedKey
}

// A parkedKey has the tasks of one key.
type parkedKey struct {
	order list.List // of parkedTask
	at    map[string]*list.Element
}

type parkedTask struct {
	queue, id string
	until     time.Time // it has come back by itself by then
}

// mostParked is how many tasks are remembered. What is beyond comes back by itself.
const mostParked = 10000

func (p *parked) add(key string, task parkedTask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count >= mostParked {
		p.sweep()
	}
	if p.count >= mostParked {
		return
	}
	if p.keys == nil {
		p.keys = map[string]*parkedKey{}
	}
	k := p.keys[key]
	if k == nil {
		k = &parkedKey{at: map[string]*list.Element{}}
		p.keys[key] = k
	}
	if k.at[task.id] == nil {
		k.at[task.id] = k.order.PushBack(task)
		p.count++
	}
}

// remove forgets a task, which has come back.
func (p *parked) remove(key, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.keys[key]; k != nil && k.at[id] != nil {
		p.take(key, k, k.at[id])
	}
}

// next takes the task out that has waited longest for the key, of those that have not come back by
// themselves.
func (p *parked) next(key string) (parkedTask, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := p.keys[key]; k != nil && k.order.Len() > 0; {
		if task := p.take(key, k, k.order.Front()); time.Now().Before(task.until) {
			return task, true
		}
	}
	return parkedTask{}, false
}

// sweep forgets those that have come back by themselves. p.mu is held.
func (p *parked) sweep() {
	now := time.Now()
	for key, k := range p.keys {
		for e := k.order.Front(); e != nil; {
			this := e
			e = e.Next()
			if !now.Before(this.Value.(parkedTask).until) {
				p.take(key, k, this)
			}
		}
	}
}

// take takes a task out. p.mu is held.
func (p *parked) take(key string, k *parkedKey, e *list.Element) parkedTask {
	task := k.order.Remove(e).(parkedTask)
	delete(k.at, task.id)
	p.count--
	if k.order.Len() == 0 {
		delete(p.keys, key)
	}
	return task
}

// park remembers the task under the ID under which it will come back. What it has waited in its
// worker does not count.
func (d *delivery) park(id string) {
	d.m.parked.add(d.identity, parkedTask{queue: d.queue, id: id, until: time.Now().Add(max(d.m.every, longestDelay) * 5 / 4)})
}

// handOver brings back a task that waits for the key, now that a run has ended.
func (d *delivery) handOver() {
	if d.m.inspector == nil {
		return
	}
	if d.m.busy == Coalesce {
		d.bringFollowUp()
	}
	for task, ok := d.m.parked.next(d.identity); ok && !d.m.bring(task); {
		task, ok = d.m.parked.next(d.identity)
	}
}

// A task that has just been postponed takes its worker and asynq a moment to put aside.
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
		case info.State == asynq.TaskStateScheduled, info.State == asynq.TaskStateRetry && strings.Contains(info.LastErr, postponed):
			return m.inspector.RunTask(task.queue, task.id) == nil
		case info.State != asynq.TaskStateActive:
			return false
		}
		time.Sleep(bringPause)
	}
	return false
}
