package guard

import (
	"context"
	"time"
)

const (
	// maxPending bounds the events that wait for hooks in the background: beyond it renewals and
	// calls are dropped. Losses and orphans are dropped beyond maxPendingLosses.
	maxPending       = 1_000
	maxPendingLosses = 20_000
)

// reporter calls hooks for what happens in the background, in order. A hook that blocks delays only
// other reports.
type reporter struct {
	serial
	dropped int // since the last event that was passed on
}

// report has call called, which calls hooks for the event e. The event is dropped if too many wait.
// important events have more room. e is nil for a warning.
func (r *reporter) report(e *Event, important bool, call func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.waiting); n >= maxPendingLosses || n >= maxPending && !important {
		r.dropped++
		return
	}
	if e != nil {
		e.Dropped, r.dropped = r.dropped, 0
	}
	r.add(call)
}

// reportCall has the hooks called for a call to the store.
func (r *reporter) reportCall(ctx context.Context, hs hooks, e CallEvent) {
	r.report(&e.Event, false, func() { hs.call(func(h *Hook) { send(ctx, h.Call, e) }) })
}

// event returns what all events of a call with these settings have. start is when the operation
// began.
func (g *Guard) event(set *settings, key, owner string, start time.Duration) Event {
	return Event{
		Name: set.name, Key: key, Owner: owner, TTL: set.ttl, Start: g.clock.Time(start), Purpose: set.purpose,
	}
}
