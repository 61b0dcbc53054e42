package guard

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
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
	store driver.Warner // nil if the Locker is none, or no hook wants to know
	next  time.Duration // when to ask
	last  []string      // the last answer
}

// warn asks for the store's warnings, in the background, at the instant now. g.mu must be held.
func (g *Guard) warn(now time.Duration) {
	w := &g.warning
	w.next = clock.Never // until the store has answered
	last := w.last
	g.background.start(func() {
		answer := last // unless the store answers
		defer func() {
			_ = recover() // a backend that only informs must not end the process
			g.mu.Lock()
			defer g.mu.Unlock()
			w.next, w.last = now+warnEvery, answer
		}()
		ctx, cancel := context.WithTimeout(g.detached(), warnWithin)
		defer cancel()
		found := w.store.Warnings(ctx)
		answer = nil
		for _, err := range found {
			answer = append(answer, err.Error())
			if slices.Contains(last, err.Error()) {
				continue
			}
			ctx, hs := g.detached(), g.reportingHooks(g.set)
			g.reporter.report(nil, true, func() { hs.call(func(h *Hook) { send(ctx, h.Warn, err) }) })
		}
	})
}

// defaultLogEvery is how often a Guard without a hook logs that work was refused.
const defaultLogEvery = time.Minute

// A defaultLog writes to slog.Default what only an operator can correct, if a Guard has no hook.
type defaultLog struct {
	mu      sync.Mutex
	next    time.Duration // when the next refusal is logged, by the Guard's clock
	refused int           // since the last one that was logged
}

func (l *defaultLog) hook(g *Guard) Hook {
	return Hook{
		Warn: func(ctx context.Context, err error) {
			slog.WarnContext(ctx, "onerun: store may lose leases", "error", err)
		},
		Outcome: func(ctx context.Context, o Outcome) {
			if o.Refused == nil {
				return
			}
			if n := l.count(g.clock.Now()); n > 0 {
				slog.WarnContext(ctx, "onerun: work refused", "adapter", o.Adapter, "name", o.Name, "result", o.Result,
					"error", without(o.Refused.Error(), o.Key, o.Owner), "refused", n)
			}
		},
	}
}

// count counts a refusal, and returns how many there were since the last one that was logged if
// this one is to be logged.
func (l *defaultLog) count(now time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
	if now < l.next {
		return 0
	}
	n := l.refused
	l.next, l.refused = now+defaultLogEvery, 0
	return n
}

// without returns text with secrets left out, as they are and as they are quoted.
func without(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		quoted := strconv.Quote(secret)
		text = strings.NewReplacer(quoted[1:len(quoted)-1], "…", secret, "…").Replace(text)
	}
	return text
}
