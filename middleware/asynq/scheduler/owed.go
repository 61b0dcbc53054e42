package guardscheduler

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

// An owed is a schedule without the ticks that an entry does not owe.
type owed struct {
	cron.Schedule
	after, upTo time.Time // none after one instant, and up to the other
	others      []*otherSpec
}

// An otherSpec is another spec of the entry.
type otherSpec struct {
	spec     string
	schedule cron.Schedule
	print    string

	since   time.Time // the entry first had it then
	handled time.Time // ticks up to it need no care
	ended   time.Time // a process had it then, and none is known to have had it later
	gaps    []knownGap
}

// all reports whether none are left out.
func (o *owed) all() bool { return len(o.others) == 0 }

func (o *owed) hasGap() bool { return o.upTo.After(o.after) }

// Next implements cron.Schedule.
func (o *owed) Next(t time.Time) time.Time {
	for {
		t = o.Schedule.Next(t)
		switch {
		case t.IsZero():
			return t
		case t.After(o.after) && !t.After(o.upTo):
			t = o.upTo.In(t.Location())
		case !o.isHandled(t):
			return t
		}
	}
}

// isHandled reports whether processes with another spec have enqueued a tick, or given it up.
func (o *owed) isHandled(tick time.Time) bool {
	return slices.ContainsFunc(o.others, func(s *otherSpec) bool { return s.hasHandled(tick) })
}

func (s *otherSpec) hasHandled(tick time.Time) bool {
	return tick.After(s.since) && !tick.After(s.handled) && s.schedule.Next(tick.Add(-1)).Equal(tick) &&
		!slices.ContainsFunc(s.gaps, func(g knownGap) bool { return tick.Unix() > g.After && tick.Unix() <= g.UpTo })
}

// missed returns the first of the missed ticks, as long as none that is not owed is between them.
func (o *owed) missed(d due) (first, last time.Time, n int) {
	last = d.first
	for n = 1; n < d.missed; n++ {
		next := o.Next(last)
		if !next.Equal(o.Schedule.Next(last)) {
			break
		}
		last = next
	}
	return d.first, last, n
}

// A located is a schedule in the location of the process that had it.
type located struct {
	cron.Schedule
	location *time.Location
}

// Next implements cron.Schedule.
func (l located) Next(t time.Time) time.Time {
	return l.Schedule.Next(t.In(l.location)).In(t.Location())
}
