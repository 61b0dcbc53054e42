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

// A pending is an event that waits for its hooks.
type pending struct {
	hooks hooks
	ctx   context.Context //nolint:containedctx // that of the event
	event Event
	pick  func(*Hook) func(context.Context, Event)
}

// reporter calls hooks for what happens in the background, in order, from a goroutine that ends
// when nothing is left to report: a hook that blocks delays only other reports.
type reporter struct {
	tasks *tasks

	mu      sync.Mutex
	queue   []pending
	dropped int // since the last event that was passed on
	running bool
}

// report has p's hooks called. The event is dropped if too many wait. important events have more
// room.
func (r *reporter) report(p pending, important bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.queue); n >= mostPendingLosses || n >= mostPending && !important {
		r.dropped++
		return
	}
	p.event.Dropped, r.dropped = r.dropped, 0
	r.queue = append(r.queue, p)
	if !r.running {
		r.running = true
		r.tasks.start(r.run)
	}
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
		p := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		if lost, ok := p.event.Err.(*LostError); ok { //nolint:errorlint // it is not wrapped
			p.event.Err = lost.explained(context.Background())
		}
		p.hooks.call(p.ctx, &p.event, p.pick)
	}
}

func (r *reporter) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}
