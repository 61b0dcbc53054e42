package ticks

import (
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Fingerprint returns a short text that is the same for equal schedules, in all processes, and
// very likely another one for schedules that differ. loc is the location that the schedule has.
func Fingerprint(s cron.Schedule, loc *time.Location) string {
	sum := fnv.New64a()
	if text := Text(s, loc); text != "" {
		_, _ = fmt.Fprint(sum, text)
	} else { // nothing is known but its ticks
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

// Shape returns a short text that is the same for schedules whose specs are the same in all but the
// time zone, and Instants one that is the same if these also have the same ticks. Both are "" for
// a schedule that is no spec: nothing is known of its zone.
func Shape(s cron.Schedule) string {
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return ""
	}
	return Fingerprint(spec, nil)
}

// Instants is described at Shape. loc is the location that the schedule has.
func Instants(s cron.Schedule, loc *time.Location) string {
	if Shape(s) == "" {
		return ""
	}
	sum := fnv.New64a()
	// Zones differ in their offsets, and in the weeks in which they change them.
	for week := range 52 {
		at := time.Date(2027, time.January, 1+7*week, 0, 0, 0, 0, time.UTC).In(loc)
		for range 3 {
			at = s.Next(at)
			_, _ = fmt.Fprint(sum, " ", at.Unix())
			if at.IsZero() {
				break
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum64())
}

// ZoneName returns the name of a location. For that of the process (time.Local), it is what the
// variable TZ or the link /etc/localtime says, if there is one.
func ZoneName(loc *time.Location) string {
	if loc.String() != "Local" {
		return loc.String()
	}
	name, set := os.LookupEnv("TZ")
	if !set {
		file, _ := os.Readlink("/etc/localtime")
		_, name, set = strings.Cut(file, "zoneinfo/")
	}
	switch {
	case !set:
		return "Local"
	case name == "":
		return "UTC"
	}
	return strings.TrimPrefix(name, ":")
}
