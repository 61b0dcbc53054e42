package guardasynq

import (
	"slices"
	"sync"
	"time"
)

// A backlog has the tasks that this process has postponed because their key was busy, in the order
// in which they came: when a run of the key ends, here or elsewhere, the first of them is woken. A
// task that finds its key busy again keeps its position. This only saves time: each task comes
// back by itself when its delay is over.
type backlog struct {
	watch func(key string) (stop func()) // wakes tasks when runs end elsewhere
	look  func(key string)               // wakes a task if the key is free

	mu    sync.Mutex
	count int
	keys  map[string]*queue
	swept time.Time
}

// A queue has the tasks of one key.
type queue struct {
	tasks  []waiter
	last   waiter // the one that was woken last
	waking bool   // asynq does not have that one yet
	stop   func() // ends the watch
	timer  *time.Timer
}

// A waiter is a task that asynq has set aside.
type waiter struct {
	queue, id string
	until     time.Time // it has come back by itself by then
	woken     time.Time // when it was woken or came back, or zero
}

const (
	// maxBacklog is how many tasks are remembered. Further tasks come back by themselves.
	maxBacklog = 10000
	// maxWoken bounds how many tasks of a key that were woken keep their positions. Usually there
	// is one such task, and more if they go to other processes.
	maxWoken = 16
	// sweepInterval is how often tasks that have come back in other processes are forgotten, and
	// fullInterval how often if there is no room for more.
	sweepInterval = time.Minute
	fullInterval  = time.Second
)

// add adds a task to the queue of a key. If the task was there under the ID before, it keeps that
// position.
func (b *backlog) add(key, before string, w waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ago := time.Since(b.swept); ago > sweepInterval || b.count >= maxBacklog && ago > fullInterval {
		b.sweep()
	}
	if b.keys == nil {
		b.keys = map[string]*queue{}
	}
	q := b.keys[key]
	if q == nil && b.count < maxBacklog {
		q = &queue{stop: func() {}}
		b.keys[key] = q
		if b.watch != nil {
			q.stop = b.watch(key)
		}
	}
	switch i := q.index(before); {
	case i >= 0:
		q.tasks[i] = w
	case b.count < maxBacklog:
		q.tasks = append(q.tasks, w)
		b.count++
	}
}

// index returns the position of a task, or -1. The queue may be nil.
func (q *queue) index(id string) int {
	if q == nil {
		return -1
	}
	return slices.IndexFunc(q.tasks, func(w waiter) bool { return w.id == id })
}

// arrive notes that a task has come back. It keeps its position, and is not woken.
func (b *backlog) arrive(key, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.keys[key]
	if i := q.index(id); i >= 0 && q.tasks[i].woken.IsZero() {
		q.tasks[i].woken = time.Now()
	}
}

// leave forgets a task that has come back, unless it was added again.
func (b *backlog) leave(key, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.keys[key]
	if i := q.index(id); i >= 0 && !q.tasks[i].woken.IsZero() {
		q.tasks = slices.Delete(q.tasks, i, i+1)
		b.count--
		b.forgetEmpty(key, q)
	}
}

// next returns the first task of a key that is to be woken, and notes that it is. It returns none
// if another one was woken since, or none waits.
func (b *backlog) next(key string, since time.Time) (next waiter, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.keys[key]
	if q == nil || q.last.woken.After(since) {
		return waiter{}, false
	}
	now, woken := time.Now(), 0
	b.remove(q, func(w waiter) bool { return !now.Before(w.until) })
	i := slices.IndexFunc(q.tasks, func(w waiter) bool { return w.woken.IsZero() })
	if i < 0 { // those that were woken went elsewhere, or come in a moment
		b.remove(q, func(waiter) bool { return true })
		b.forgetEmpty(key, q)
		return waiter{}, false
	}
	q.tasks[i].woken = now
	q.last, q.waking = q.tasks[i], true
	for _, w := range q.tasks {
		if !w.woken.IsZero() {
			woken++
		}
	}
	b.remove(q, func(w waiter) bool {
		old := !w.woken.IsZero() && woken > maxWoken
		if old {
			woken--
		}
		return old
	})
	return q.last, true
}

// last returns the task of the key that was woken last, or the zero value, and whether asynq has
// yet to be told to run it.
func (b *backlog) last(key string) (last waiter, waking bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.keys[key]; q != nil {
		return q.last, q.waking
	}
	return waiter{}, false
}

// woke notes that asynq has been told to run the task that next returned.
func (b *backlog) woke(key, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.keys[key]; q != nil && q.last.id == id {
		q.waking = false
	}
}

// lookAfter looks at the key after a time, if tasks of it wait then. A time of 0 is not known.
func (b *backlog) lookAfter(key string, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch q := b.keys[key]; {
	case q == nil || left <= 0:
	case q.timer == nil:
		q.timer = time.AfterFunc(left, func() { b.look(key) })
	default:
		q.timer.Reset(left)
	}
}

// remove removes tasks of a queue. b.mu is held.
func (b *backlog) remove(q *queue, which func(waiter) bool) {
	before := len(q.tasks)
	q.tasks = slices.DeleteFunc(q.tasks, which)
	b.count -= before - len(q.tasks)
}

// sweep forgets tasks that have come back by themselves. b.mu is held.
func (b *backlog) sweep() {
	b.swept = time.Now()
	for key, q := range b.keys {
		b.remove(q, func(w waiter) bool { return !b.swept.Before(w.until) })
		b.forgetEmpty(key, q)
	}
}

// forgetEmpty forgets a key without tasks. b.mu is held.
func (b *backlog) forgetEmpty(key string, q *queue) {
	if len(q.tasks) > 0 {
		return
	}
	delete(b.keys, key)
	q.stop()
	if q.timer != nil {
		q.timer.Stop()
	}
}
