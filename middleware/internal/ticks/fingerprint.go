package ticks

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/robfig/cron/v3"
)

// Fingerprint returns a short text that is the same for equal schedules, in all processes, and
// very likely another one for schedules that differ. loc is the location that the schedule has.
func Fingerprint(s cron.Schedule, loc *time.Location) string {
	sum := fnv.New64a()
	switch s := s.(type) {
	case *cron.SpecSchedule:
		_, _ = fmt.Fprint(sum, "spec ", s.Second, s.Minute, s.Hour, s.Dom, s.Month, s.Dow, loc)
	case Every:
		_, _ = fmt.Fprint(sum, "every ", int64(s))
	default:
		// Of other schedules, nothing is known but their ticks.
		_, _ = fmt.Fprintf(sum, "%T", s)
		for _, year := range []int{2025, 2028} {
			at := time.Date(year, time.January, 31, 0, 0, 0, 0, loc)
			for range 16 {
				next := s.Next(at)
				if !next.After(at) {
					break
				}
				_, _ = fmt.Fprint(sum, " ", next.UnixNano())
				at = next
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum64())
}

// Location returns the location in which a schedule has its ticks: its own, which CRON_TZ sets, or
// otherwise loc.
func Location(s cron.Schedule, loc *time.Location) *time.Location {
	if spec, ok := s.(*cron.SpecSchedule); ok && spec.Location != time.Local {
		return spec.Location
	}
	return loc
}
