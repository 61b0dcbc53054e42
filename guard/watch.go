package guard

import (
	"context"
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
	w := &watch{serial: serial{tasks: &g.background}}
	ctx, cancel := context.WithCancel(context.Background())
	w.call, w.cancel = func() { f(ctx) }, cancel
	g.mu.Lock()
	if g.isClosed() {
		g.mu.Unlock()
		cancel()
		return func() {}
	}
	g.watches[w] = w.end
	g.mu.Unlock()
	// It may notify at once.
	w.started(g.subscriber.Subscribe(stored, "", func(time.Duration) { w.notify() }))
	return func() {
		g.mu.Lock()
		delete(g.watches, w)
		g.mu.Unlock()
		w.end()
	}
}

// A watch is a subscription of an adapter.
type watch struct {
	call   func() // the adapter's function
	cancel func() // ends the context of the function

	serial
	// serial.mu guards what follows.
	over        bool
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
	if !w.over && len(w.waiting) == 0 {
		w.add(w.call)
	}
}

func (w *watch) end() {
	w.mu.Lock()
	over, unsubscribe := w.over, w.unsubscribe
	w.over, w.waiting = true, nil
	w.mu.Unlock()
	w.cancel()
	if !over && unsubscribe != nil {
		unsubscribe()
	}
}
