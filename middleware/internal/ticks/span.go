package ticks

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

// MaxIn bounds how many ticks In returns.
const MaxIn = 1000

// In returns the ticks of a schedule after from, up to and including to, the oldest first: the
// first MaxIn of them. from and to are in the location of the cron that has the schedule.
func In(s cron.Schedule, from, to time.Time) []time.Time {
	var found []time.Time
	for len(found) < MaxIn {
		t := s.Next(from)
		// Next returns the zero time where it has found none for five years
		if !t.After(from) || t.After(to) {
			break
		}
		found = append(found, t)
		from = t
	}
	return found
}

// A Span has the ticks that have come in some time: the newest ones, the oldest first, and how many
// came before them, from First to Last. Of very many, it does not count all.
type Span struct {
	Ticks  []time.Time
	Before int
	First  time.Time
	Last   time.Time
}

// maxLooks bounds how often In is called for a Span: years of seconds would take minutes.
const maxLooks = 100

// Come returns the ticks of a schedule after from, up to and including to, that count. The newest
// of them are at most MaxIn.
func Come(s cron.Schedule, from, to time.Time, counts func(tick time.Time) bool) Span {
	var g Span
	for looks := 1; ; looks++ {
		if looks == maxLooks {
			if newest := newestFrom(s, from, to); newest.After(from) {
				g.Ticks, g.Before, g.Last = nil, g.Before+len(g.Ticks), newest
				from = newest
			}
		}
		next := In(s, from, to)
		full := len(next) == MaxIn
		if full {
			from = next[len(next)-1]
		}
		next = slices.DeleteFunc(next, func(tick time.Time) bool { return !counts(tick) })
		g.Ticks = append(g.Ticks, next...)
		if len(g.Ticks) > 0 && g.First.IsZero() {
			g.First = g.Ticks[0]
		}
		g.Keep(MaxIn)
		if !full {
			return g
		}
	}
}

// Keep keeps the newest n ticks. The others count as those before them.
func (g *Span) Keep(n int) {
	if drop := len(g.Ticks) - n; drop > 0 {
		g.Last = g.Ticks[drop-1]
		g.Ticks, g.Before = g.Ticks[drop:], g.Before+drop
	}
}

// newestFrom returns an instant from which on a schedule has the newest MaxIn ticks up to and
// including to, and not many more. It is not before from.
func newestFrom(s cron.Schedule, from, to time.Time) time.Time {
	for back := MaxIn * time.Second; ; back *= 2 {
		at := to.Add(-back)
		if !at.After(from) {
			return from
		}
		if len(In(s, at, to)) == MaxIn {
			return at
		}
	}
}
