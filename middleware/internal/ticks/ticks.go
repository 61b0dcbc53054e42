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
