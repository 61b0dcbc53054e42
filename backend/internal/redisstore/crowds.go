package redisstore

import (
	"sync"
	"sync/atomic"
	"time"
)

// crowdMemory is for how long a Locker expects that many wait for a key, after it waited with them.
const crowdMemory = 10 * time.Second

// crowds are the crowdWaiters of a Locker. The zero value has none. It is safe for concurrent use.
type crowds struct {
	crowded recent // keys
	size    atomic.Int64

	mu    sync.Mutex
	byKey map[string]map[*crowdWaiter]struct{}
}

func (c *crowds) join(key string, notify func(in time.Duration)) *crowdWaiter {
	w := &crowdWaiter{notify: notify, crowded: c.crowded.has(key)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil {
		c.byKey = map[string]map[*crowdWaiter]struct{}{}
	}
	if c.byKey[key] == nil {
		c.byKey[key] = map[*crowdWaiter]struct{}{}
	}
	c.byKey[key][w] = struct{}{}
	c.size.Add(1)
	return w
}

// leave removes w, which may have left before.
func (c *crowds) leave(key string, w *crowdWaiter) {
	if w.stop() {
		c.crowded.add(key, crowdMemory)
	} else {
		c.crowded.remove(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[key][w]; !ok {
		return
	}
	delete(c.byKey[key], w)
	if len(c.byKey[key]) == 0 {
		delete(c.byKey, key)
	}
	c.size.Add(-1)
}

// granted notes that the process has got the key: a waiter that stays has waited for no time.
func (c *crowds) granted(key string) {
	if c.size.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.byKey[key] {
		w.granted()
	}
}
