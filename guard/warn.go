package guard

import (
	"context"
	"time"
)

// warnWithin is how long the store has for its warnings.
const warnWithin = time.Second

// reportingHooks returns the hooks of the settings, or that which logs to slog.Default if there are
// none.
func (g *Guard) reportingHooks(set *settings) hooks {
	if len(set.hooks) == 0 {
		return g.byDefault
	}
	return set.hooks
}

// warn asks for the store's warnings, once, in the background. g.mu must be held.
func (g *Guard) warn() {
	warner := g.warner
	if warner == nil {
		return
	}
	g.warner = nil
	g.background.start(func() {
		ctx, cancel := context.WithTimeout(g.detached(), warnWithin)
		defer cancel()
		defer func() { _ = recover() }() // a backend that only informs must not end the process
		start := g.clock.Now()
		for _, err := range warner.Warnings(ctx) {
			e := Event{Start: g.clock.Time(start), Duration: g.clock.Now() - start, Err: err}
			g.reporter.report(pending{g.reportingHooks(g.set), g.detached(), e, pickWarn}, true)
		}
	})
}
