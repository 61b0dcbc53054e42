package guardasynq

import (
	"math"
	"sync"
)

// waiters counts the tasks that wait for a key in their workers.
type waiters struct {
	most int // of one key
	mu   sync.Mutex
	keys map[string]int
}

// How many tasks of a key may wait in a process. It is one if a task would be postponed otherwise,
// so that the tasks of one key do not occupy all workers. It is any number if a task would end.
const (
	keyWaiters = 1
	noBound    = math.MaxInt
)

// enter reports whether one more may wait for the key. If so, leave has to be called.
func (w *waiters) enter(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key] >= w.most {
		return false
	}
	w.keys[key]++
	return true
}

// any reports whether one waits for the key.
func (w *waiters) any(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[key] > 0
}

func (w *waiters) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key]--; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}
