package guard

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// defaultLogEvery is how often a Guard without a hook logs that work was refused.
const defaultLogEvery = time.Minute

// A defaultLog writes to slog.Default what only an operator can correct, if a Guard has no hook.
type defaultLog struct {
	mu      sync.Mutex
	next    time.Duration // when the next refusal is logged, by the Guard's clock
	refused int           // since the last one that was logged
}

// hook returns the hook of a Guard that has no other.
func (l *defaultLog) hook(g *Guard) Hook {
	return Hook{
		Warn: func(ctx context.Context, e Event) {
			slog.WarnContext(ctx, "onerun: store may lose leases", "error", e.Err)
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
