package guard

import (
	"context"
	"sync"
)

const (
	// mostPending bounds the events that wait for hooks in the background: beyond it renewals and
	// calls are dropped. Losses and orphans are dropped beyond mostPendingLosses.
	mostPending       = 1_000
	mostPendingLosses = 20_000
)

// reporter calls hooks for what happens in the background, in order, from a goroutine that ends
// when nothing is left to report: a hook that blocks delays only other reports.
type reporter struct {
	tasks *tasks

	mu      sync.Mutex
	queue   []func() // each calls hooks for an event
	dropped int      // since the last event that was passed on
	running bool
}

// report has call called, which calls hooks for the event e. The event is dropped if too many wait.
// important events have more room. e is nil for a warning.
func (r *reporter) report(e *Event, important bool, call func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.queue); n >= mostPendingLosses || n >= mostPending && !important {
		r.dropped++
		return
	}
	if e != nil {
		e.Dropped, r.dropped = r.dropped, 0
	}
	r.queue = append(r.queue, call)
	if !r.running {
		r.running = true
		r.tasks.start(r.run)
	}
}

// reportCall has the hooks called for a call to the store.
func (r *reporter) reportCall(ctx context.Context, hs hooks, e CallEvent) {
	r.report(&e.Event, false, func() { hs.call(func(h *Hook) { send(ctx, h.Call, e) }) })
}

// run passes the events on. If a hook ends the goroutine, another one goes on.
func (r *reporter) run() {
	finished := false
	defer func() {
		if !finished {
			r.tasks.start(r.run)
		}
	}()
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.running, r.queue = false, nil
			finished = true
			r.mu.Unlock()
			return
		}
		call := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		call()
	}
}

func (r *reporter) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}
