// Package ticks is what package guardcron and the asynq scheduler share. It works out the instants
// of a cron schedule, so that all processes name them the same. It keeps in the store which of them
// have an outcome.
//
//	Marks.Begin   a process has a spec of an entry: its ticks count from when the first one had it
//	      │
//	Marks.Read    what the store knows of the spec, and of the others that the entry has or had
//	      │
//	Remaining     the ticks after the mark that have no outcome yet: to be run, or reported
//	      │
//	Marks.Raise   all ticks up to here have an outcome
//	Marks.Ahead   this one has, while an older one has none
//	Marks.Omit    those of this time do not count: another spec had replaced this one
//
// How a tick gets its outcome is for the caller, which holds a lease for it.
package ticks

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

// Align returns the schedule, or, for a constant delay ("@every d"), one whose ticks are the
// multiples of the delay since 1970-01-01 00:00 UTC: that of cron counts from the start of each
// process, so that processes would have no tick in common.
func Align(s cron.Schedule) cron.Schedule {
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return Every(max(1, every.Delay/time.Second)) // as cron.Every has it
	}
	return s
}

// Every is the schedule of the multiples of so many seconds since 1970.
type Every int64

// Next implements cron.Schedule.
func (d Every) Next(t time.Time) time.Time {
	into := t.Unix() % int64(d)
	if into < 0 {
		into += int64(d)
	}
	return time.Unix(t.Unix()-into+int64(d), 0).In(t.Location())
}

// MaxCatchUp is how many old ticks an entry can catch up with at most.
const MaxCatchUp = 1000

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

// Periods returns about the shortest and the longest time between two ticks of a schedule, from
// one of them on. The longest is no more than it is, and no less than half of it where the pattern
// is one of a day, a week, a month or a year. Both are 0 if there is no other tick.
func Periods(s cron.Schedule, tick time.Time) (shortest, longest time.Duration) {
	var at time.Time
	look := func(times int, pace time.Duration) {
		at = tick
		for n := 0; n < times && at.Sub(tick) < 5*366*24*time.Hour; n++ {
			next := s.Next(at)
			if !next.After(at) {
				return
			}
			period := next.Sub(at)
			longest = max(longest, period)
			// at is a tick only if no time was passed over
			if n == 0 || pace == 0 {
				shortest = shorter(shortest, period)
			} else if after := s.Next(next); after.After(next) {
				shortest = shorter(shortest, after.Sub(next))
			}
			at = next.Add(max(0, pace-time.Second))
		}
	}
	look(32, 0)
	if isDaily(s) {
		look(2*48, time.Hour/2)
		return shortest, longest
	}
	look(8*48, time.Hour/2)
	look(400, 24*time.Hour)
	return shortest, longest
}

// isDaily reports whether a schedule has the same ticks on each day.
func isDaily(s cron.Schedule) bool {
	const star = 1 << 63 // cron sets this bit for "*"
	spec, ok := s.(*cron.SpecSchedule)
	return ok && spec.Dom&spec.Month&spec.Dow&star != 0
}

// Later returns the later of two instants.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// shorter returns the shorter of two times, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
