package idempotent

import "sync/atomic"

// A Place holds the Outcome of an adapter for code in front of its middleware, which may read it
// while the call still runs.
type Place[O any] struct{ outcome atomic.Pointer[O] }

// Set sets the Outcome.
func (p *Place[O]) Set(o O) { p.outcome.Store(&o) }

// Get returns the Outcome, or the zero one if none was set.
func (p *Place[O]) Get() (o O) {
	if set := p.outcome.Load(); set != nil {
		o = *set
	}
	return o
}
