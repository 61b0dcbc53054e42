package guard

import (
	"context"
	"sync"
	"time"
)

// drainTime is how long Close waits for a store that does not answer if its context has no
// deadline.
const drainTime = 5 * time.Second

// A counter counts what Close waits for. A lock of its user guards it.
type counter struct {
	n    int
	zero chan struct{} // closed when n is 0; nil unless somebody waits
}

func (c *counter) add(n int) {
	c.n += n
	if c.n == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// await waits until the counter, which lock guards, is 0. It returns false if ctx ends before.
func (c *counter) await(ctx context.Context, lock sync.Locker) bool {
	for {
		lock.Lock()
		if c.n == 0 {
			lock.Unlock()
			return true
		}
		if c.zero == nil {
			c.zero = make(chan struct{})
		}
		zero := c.zero
		lock.Unlock()
		select {
		case <-zero:
		case <-ctx.Done():
			return false
		}
	}
}

// tasks are goroutines for which Close waits.
type tasks struct {
	mu      sync.Mutex
	running counter
}

// start runs f in a goroutine.
func (t *tasks) start(f func()) {
	t.mu.Lock()
	t.running.add(1)
	t.mu.Unlock()
	go func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.running.add(-1)
		}()
		f()
	}()
}

// await waits until none is running. It returns false if ctx ends before.
func (t *tasks) await(ctx context.Context) bool { return t.running.await(ctx, &t.mu) }

// each calls f for 0 to n-1 at once, and returns when all have returned, or ended their
// goroutines. If one has panicked, so does each: a panic in a goroutine of ours would end the
// process.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	panics := make([]any, n)
	for i := range n {
		all.Go(func() {
			defer func() { panics[i] = recover() }()
			f(i)
		})
	}
	all.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
}
