package ticks

import (
	"encoding/json"
	"time"

	"github.com/robfig/cron/v3"
)

// A text is a schedule as Text writes it.
type text struct {
	Every int64     `json:"every,omitempty"`
	Spec  [6]uint64 `json:"spec,omitzero"`
	Zone  string    `json:"zone,omitempty"`
}

// Text returns a schedule as text, which Parse reads, also in another process. loc is the location
// that the schedule has. Of schedules that are neither a spec nor Every, nothing is known: the text
// is empty.
func Text(s cron.Schedule, loc *time.Location) string {
	var t text
	switch s := s.(type) {
	case *cron.SpecSchedule:
		t.Spec, t.Zone = [6]uint64{s.Second, s.Minute, s.Hour, s.Dom, s.Month, s.Dow}, loc.String()
	case Every:
		t.Every = int64(s)
	default:
		return ""
	}
	written, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return string(written)
}

// Parse returns the schedule that a text is of. If it is no text of Text, or its location is not
// known here, the schedule has no ticks.
func Parse(written string) cron.Schedule {
	var t text
	if json.Unmarshal([]byte(written), &t) != nil {
		return none{}
	}
	if t.Every > 0 {
		return Every(t.Every)
	}
	loc, err := time.LoadLocation(t.Zone)
	if err != nil || t.Zone == "" {
		return none{}
	}
	return located{&cron.SpecSchedule{Second: t.Spec[0], Minute: t.Spec[1], Hour: t.Spec[2], Dom: t.Spec[3], Month: t.Spec[4], Dow: t.Spec[5], Location: loc}, loc}
}

// A located is a schedule in its location, which may be time.Local.
type located struct {
	cron.Schedule
	loc *time.Location
}

// Next implements cron.Schedule.
func (l located) Next(t time.Time) time.Time { return l.Schedule.Next(t.In(l.loc)).In(t.Location()) }

// none is a schedule without ticks.
type none struct{}

// Next implements cron.Schedule.
func (none) Next(time.Time) time.Time { return time.Time{} }

// has reports whether the schedule has the tick.
func has(s cron.Schedule, tick time.Time) bool { return s.Next(tick.Add(-1)).Equal(tick) }
