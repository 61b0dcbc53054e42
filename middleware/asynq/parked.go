package guardasynq

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// parked are the tasks that this process has postponed because their key was busy, in the order in
// which they came: when a run of the key ends, here or elsewhere, the next of them is brought back
// at once. A task that finds its key busy again keeps its position. This only saves time: each
// task comes back by itself when its time is up.
type parked struct {
	watch func(key string) (stop func()) // learns of the ends of runs elsewhere
	look  func(key string)               // looks whether the key is free

	mu        sync.Mutex
	count     int
	positions int // how many were assigned
	keys      map[string]*parkedKey
	swept     time.Time
}

// A parkedKey has the tasks of one key. It exists while there is such a task, or while one that
// was brought is on its way.
type parkedKey struct {
	order   list.List // of parkedTask
	at      map[string]*list.Element
	brought []parkedTask // and not come yet
	last    parkedTask   // the one that was brought last
	stop    func()       // ends the watch
	timer   *time.Timer  // for the next look at the key, or nil
}

type parkedTask struct {
	queue, id string
	until     time.Time // it has come back by itself by then
	broughtAt time.Time
	position  int // the larger, the later it came; 0 for one that has none yet
}

const (
	// mostParked is how many tasks are remembered. Further tasks come back by themselves.
	mostParked = 10000
	// mostBrought bounds how many tasks of a key that were brought, and have not come yet, keep
	// their positions. Usually there is one such task, and more if they go to other processes.
	mostBrought = 16
	// sweepInterval is how often tasks that have come back in other processes are forgotten, and
	// fullInterval how often if there is no room for more. A sweep looks at all tasks, which takes
	// a while.
	sweepInterval = time.Minute
	fullInterval  = time.Second
)

func (p *parked) add(key string, task parkedTask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ago := time.Since(p.swept); ago > sweepInterval || p.count >= mostParked && ago > fullInterval {
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
		k = &parkedKey{at: map[string]*list.Element{}, stop: func() {}}
		p.keys[key] = k
		if p.watch != nil {
			k.stop = p.watch(key)
		}
	}
	if k.at[task.id] != nil {
		return
	}
	if task.position == 0 {
		p.positions++
		task.position = p.positions
	}
	k.at[task.id] = k.insert(task)
	p.count++
}

// insert puts a task behind those that came before it.
func (k *parkedKey) insert(task parkedTask) *list.Element {
	for e := k.order.Back(); e != nil; e = e.Prev() {
		if e.Value.(parkedTask).position < task.position {
			return k.order.InsertAfter(task, e)
		}
	}
	return k.order.PushFront(task)
}

// remove forgets a task, which has come back, and returns its position: 0 if it had none.
func (p *parked) remove(key, id string) (position int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	switch {
	case k == nil:
		return 0
	case k.at[id] != nil:
		position = p.take(k, k.at[id]).position
	default:
		if i := slices.IndexFunc(k.brought, func(t parkedTask) bool { return t.id == id }); i >= 0 {
			position = k.brought[i].position
			k.brought = slices.Delete(k.brought, i, i+1)
		}
	}
	p.forgetEmpty(key, k)
	return position
}

// next takes the task out that has waited longest for the key, of those that have not come back by
// themselves, unless another one was taken out since.
func (p *parked) next(key string, since time.Time) (parkedTask, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k == nil || k.last.broughtAt.After(since) {
		return parkedTask{}, false
	}
	for k.order.Len() > 0 {
		k.last = p.take(k, k.order.Front())
		k.last.broughtAt = time.Now()
		if k.last.broughtAt.Before(k.last.until) {
			k.brought = append(k.brought[max(0, len(k.brought)+1-mostBrought):], k.last)
			return k.last, true
		}
	}
	k.brought = nil
	p.forgetEmpty(key, k)
	return parkedTask{}, false
}

// sweep forgets those that have come back by themselves. p.mu is held.
func (p *parked) sweep() {
	now := time.Now()
	p.swept = now
	for key, k := range p.keys {
		for e := k.order.Front(); e != nil; {
			this := e
			e = e.Next()
			if !now.Before(this.Value.(parkedTask).until) {
				p.take(k, this)
			}
		}
		if now.Sub(k.last.broughtAt) > sweepInterval {
			k.brought = nil
		}
		p.forgetEmpty(key, k)
	}
}

// take takes a task out. p.mu is held.
func (p *parked) take(k *parkedKey, e *list.Element) parkedTask {
	task := k.order.Remove(e).(parkedTask)
	delete(k.at, task.id)
	p.count--
	return task
}

// forgetEmpty forgets a key that has no task left. p.mu is held.
func (p *parked) forgetEmpty(key string, k *parkedKey) {
	if k.order.Len() == 0 && len(k.brought) == 0 {
		delete(p.keys, key)
		k.stop()
		if k.timer != nil {
			k.timer.Stop()
		}
	}
}

// lookAfter looks at the key after a time, if tasks of it wait. A time of 0 is not known.
func (p *parked) lookAfter(key string, left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch k := p.keys[key]; {
	case k == nil || left <= 0:
	case k.timer == nil:
		k.timer = time.AfterFunc(left, func() { p.look(key) })
	default:
		k.timer.Reset(left)
	}
}

// lookAgain is lookAfter for a key at which lookAfter has looked.
func (p *parked) lookAgain(key string, left time.Duration) {
	p.mu.Lock()
	k := p.keys[key]
	looks := k != nil && k.timer != nil
	p.mu.Unlock()
	if looks {
		p.lookAfter(key, left)
	}
}

// brought returns which task of the key was brought last, and whether there are more.
func (p *parked) brought(key string) (last parkedTask, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k == nil {
		return parkedTask{}, false
	}
	return k.last, k.order.Len() > 0
}
