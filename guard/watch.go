package guard

import (
	"context"
	"sync"
	"time"
)

// Watch calls f when the key may be free. This is after a release by any process, and when the
// backend may have missed one: before its subscription began, or while its connection was lost. f
// runs in a goroutine for which Close waits. f never runs twice at the same time. If there was a
// notification while it ran, it runs once more. opts are those of the calls for the key. The watch
// ends with stop and with Close: the context of f ends then, and stop does not wait for it. On a
// backend that does not notify (driver.Subscriber), f is never called.
func (a Adapter) Watch(key string, f func(ctx context.Context), opts ...Option) (stop func()) {
	g := a.guard
	_, stored, err := g.prepare(key, opts)
	if err != nil || !g.notifies() {
		return func() {}
	}
	w := &watch{guard: g, f: f}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	g.mu.Lock()
	if g.isClosed() {
		g.mu.Unlock()
		w.cancel()
		return func() {}
	}
	g.watches[w] = w.end
	g.mu.Unlock()
	// It may notify at once.
	w.started(g.subscriber.Subscribe(stored, "", func(time.Duration) { w.notify() }))
	return w.stop
}

// A watch is a subscription of an adapter.
type watch struct {
	guard  *Guard
	f      func(context.Context)
	ctx    context.Context // the context of f
	cancel context.CancelFunc

	mu          sync.Mutex
	over        bool
	running     bool // f is running
	notified    bool // a notification came after f began
	unsubscribe func()
}

func (w *watch) started(unsubscribe func()) {
	w.mu.Lock()
	over := w.over
	w.unsubscribe = unsubscribe
	w.mu.Unlock()
	if over {
		unsubscribe()
	}
}

func (w *watch) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified = true
	if w.over || w.running {
		return
	}
	w.running = true
	w.guard.background.start(w.run)
}

// run calls f as long as there are notifications. If f ends its goroutine (runtime.Goexit), another
// one goes on.
func (w *watch) run() {
	ended := false
	defer func() {
		if !ended {
			w.guard.background.start(w.run)
		}
	}()
	for {
		w.mu.Lock()
		if w.over || !w.notified {
			w.running, ended = false, true
			w.mu.Unlock()
			return
		}
		w.notified = false
		w.mu.Unlock()
		contain(func() { w.f(w.ctx) })
	}
}

func (w *watch) stop() {
	w.guard.mu.Lock()
	delete(w.guard.watches, w)
	w.guard.mu.Unlock()
	w.end()
}

func (w *watch) end() {
	w.mu.Lock()
	over, unsubscribe := w.over, w.unsubscribe
	w.over = true
	w.mu.Unlock()
	w.cancel()
	if !over && unsubscribe != nil {
		unsubscribe()
	}
}
