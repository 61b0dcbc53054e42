package idempotent

import "sync"

// waiters counts the calls that wait: in all, of a scope and of a key. So a scope cannot use up the
// places of the others.
type waiters struct {
	all, perScope, perKey int // the bounds

	mu     sync.Mutex
	total  int
	scopes map[string]int // only those that have a waiter
	keys   map[string]int // only those that have a waiter
}

func newWaiters(s *Settings) waiters {
	return waiters{all: s.Waiters, perScope: s.scopeWaiters(), perKey: s.KeyWaiters, scopes: map[string]int{}, keys: map[string]int{}}
}

// enter counts one more waiter for the key, and reports whether that is allowed. If it is, leave
// must follow.
func (w *waiters) enter(scope, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= w.all || w.scopes[scope] >= w.perScope || w.keys[key] >= w.perKey {
		return false
	}
	w.total++
	w.scopes[scope]++
	w.keys[key]++
	return true
}

func (w *waiters) leave(scope, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.scopes[scope]--; w.scopes[scope] == 0 {
		delete(w.scopes, scope)
	}
	if w.keys[key]--; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}
