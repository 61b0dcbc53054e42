package guardasynq

import (
	"math"
	"sync"
)

// waiters counts those that wait for a key in their workers.
type waiters struct {
	most int // of one key
	mu   sync.Mutex
	keys map[string]int
}

// noBound lets any number wait.
const noBound = math.MaxInt

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

func (w *waiters) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key]--; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}
