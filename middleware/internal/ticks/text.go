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

// Parse returns a function that reports whether the schedule that a text is of has a tick. If it is
// no text of Text, or its location is not known here, the schedule has none.
func Parse(written string) (has func(tick time.Time) bool) {
	var t text
	var s cron.Schedule
	loc := time.UTC
	if err := json.Unmarshal([]byte(written), &t); err == nil && t.Every > 0 {
		s = Every(t.Every)
	} else if zone, err2 := time.LoadLocation(t.Zone); err == nil && err2 == nil && t.Zone != "" {
		loc = zone
		s = &cron.SpecSchedule{Second: t.Spec[0], Minute: t.Spec[1], Hour: t.Spec[2], Dom: t.Spec[3], Month: t.Spec[4], Dow: t.Spec[5], Location: loc}
	}
	return func(tick time.Time) bool {
		return s != nil && s.Next(tick.Add(-1).In(loc)).Equal(tick)
	}
}
