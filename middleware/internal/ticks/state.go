package ticks

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

// A State is what the store knows of a spec.
type State struct {
	Spec
	Schedule cron.Schedule // by its text

	// in milliseconds since 1970, 0 if there is none:
	first   int64 // the entry first had the spec
	mark    int64 // all ticks up to then have an outcome
	ahead   map[int64]bool
	omitted []omitted
}

// An omitted is a time in which a spec has no ticks: after one instant, up to the other.
type omitted struct {
	After int64 `json:"after"`
	UpTo  int64 `json:"upTo"`
}

// First returns when the entry first had the spec, or zero.
func (s *State) First() time.Time { return instant(s.first) }

// Mark returns the instant up to which all ticks of the spec that count have an outcome: not before
// its first one.
func (s *State) Mark() time.Time { return instant(max(s.first, s.mark)) }

// Settled reports whether a tick of the spec has an outcome. One of a time in which the spec has no
// ticks has none: a process that had the spec then, and could not say so, has to see to it.
func (s *State) Settled(tick time.Time) bool {
	at := tick.UnixMilli()
	return s.ahead[at] || at > s.first && at <= s.mark && s.skips(tick).IsZero()
}

// Handled reports whether processes with other specs have given a tick its outcome.
func Handled(tick time.Time, others []*State) bool {
	return slices.ContainsFunc(others, func(s *State) bool { return s.hasOutcome(tick) })
}

// skips returns the end of the omitted time in which a tick is, or zero.
func (s *State) skips(tick time.Time) time.Time {
	for _, g := range s.omitted {
		if at := tick.UnixMilli(); at > g.After && at <= g.UpTo {
			return instant(g.UpTo)
		}
	}
	return time.Time{}
}

// hasOutcome reports whether a tick of another spec has its outcome as one of this.
func (s *State) hasOutcome(tick time.Time) bool {
	at := tick.UnixMilli()
	return s.ahead[at] || at > s.first && at <= s.mark && s.skips(tick).IsZero() && has(s.Schedule, tick)
}

// since returns when the entry last got the spec, and last its newest tick that has an outcome.
func (s *State) since() int64 {
	since := s.first
	for _, g := range s.omitted {
		since = max(since, g.UpTo)
	}
	return since
}

func (s *State) last() int64 {
	last := s.mark
	for at := range s.ahead {
		last = max(last, at)
	}
	return last
}

// Replaced returns since when the entry has another spec instead, or zero if it was this one that
// came last. A newer spec replaces it at once, and an older one that is back does if it alone had
// ticks for long.
func (s *State) Replaced(others []*State, long time.Duration) time.Time {
	replaced, since := int64(0), s.since()
	from := max(since, s.last())
	for _, o := range others {
		at := int64(0)
		if o.first > since {
			if max(o.first, o.last()) > s.last() {
				at = max(o.first, from)
			}
		} else if back := max(o.since(), from); o.last()-back > long.Milliseconds() {
			at = back
		}
		if at > 0 && (replaced == 0 || at < replaced) {
			replaced = at
		}
	}
	return instant(replaced)
}

// A Remaining is a schedule without the ticks that do not count, or that processes with another
// spec of the entry have handled. Which older ones have an outcome is for the caller: see Mark and
// Settled.
type Remaining struct {
	cron.Schedule

	Own    *State // nil if none is left out
	Others []*State
	Until  time.Time // it has no ticks after that; zero if it does not end
}

// Next implements cron.Schedule.
func (o Remaining) Next(t time.Time) time.Time {
	for {
		t = o.Schedule.Next(t)
		switch {
		case !o.Until.IsZero() && t.After(o.Until):
			return time.Time{}
		case t.IsZero(), o.Own == nil:
			return t
		}
		if end := o.Own.skips(t); !end.IsZero() {
			t = Later(t, end.In(t.Location()))
		} else if t.UnixMilli() != o.Own.mark && !Handled(t, o.Others) {
			return t
		}
	}
}
