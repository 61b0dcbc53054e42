package idempotent

import "sync"

// waiters counts the calls that wait.
type waiters struct {
	most, perKey int

	mu   sync.Mutex
	all  int
	keys map[string]int // only keys that have a waiter
}

// enter counts one more waiter for the key, and reports whether that is allowed. If it is, leave
// must follow.
func (w *waiters) enter(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= w.most || w.keys[key] >= w.perKey {
		return false
	}
	w.all++
	w.keys[key]++
	return true
}

func (w *waiters) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.keys[key]--; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}
