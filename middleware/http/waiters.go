package guardhttp

import "sync"

// waiters counts the requests that wait.
type waiters struct {
	most, perKey int

	mu   sync.Mutex
	all  int
	keys map[string]int // only those for which somebody waits
}

// enter counts one more for the key, and reports whether that is allowed. leave has to follow if
// it is.
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
