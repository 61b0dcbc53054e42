package guard

import (
	"context"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// warnWithin is how long the store has for its warnings.
	warnWithin = time.Second
	// warnEvery is how often it is asked, while there are leases: some come up in time.
	warnEvery = time.Hour
)

// reportingHooks returns the hooks of the settings, or that which logs to slog.Default if there are
// none.
func (g *Guard) reportingHooks(set *settings) hooks {
	if len(set.hooks) == 0 {
		return g.byDefault
	}
	return set.hooks
}

// A warning asks the store for what an operator should know, now and then.
type warning struct {
	store  driver.Warner // nil if the Locker is none, or no hook wants to know
	next   time.Duration // when to ask, by the Guard's clock
	asking bool
	last   []string // the last answer
}

// warn asks for the store's warnings, in the background, if that is due. g.mu must be held.
func (g *Guard) warn() {
	w := &g.warning
	now := g.clock.Now()
	if w.asking || now < w.next {
		return
	}
	w.asking, w.next = true, now+warnEvery
	last := w.last
	g.background.start(func() {
		answer := last // unless the store answers
		defer func() {
			_ = recover() // a backend that only informs must not end the process
			g.mu.Lock()
			defer g.mu.Unlock()
			w.asking, w.last = false, answer
		}()
		ctx, cancel := context.WithTimeout(g.detached(), warnWithin)
		defer cancel()
		start := g.clock.Now()
		found := w.store.Warnings(ctx)
		answer = nil
		for _, err := range found {
			answer = append(answer, err.Error())
			if slices.Contains(last, err.Error()) {
				continue
			}
			e := Event{Start: g.clock.Time(start), Duration: g.clock.Now() - start, Err: err}
			g.reporter.report(pending{g.reportingHooks(g.set), g.detached(), e, pickWarn}, true)
		}
	})
}
