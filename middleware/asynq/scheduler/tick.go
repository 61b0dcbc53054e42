package guardscheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// parse returns the schedule of a spec. "@every d" has its ticks at the multiples of d since 1970.
func parse(spec string) (cron.Schedule, error) {
	if (strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")) && !strings.Contains(spec, " ") {
		// the parser panics on it
		return nil, fmt.Errorf("there is no schedule behind the time zone")
	}
	s, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, err
	}
	return ticks.Align(s), nil
}

// shownSpec returns a spec by which asynq's list of entries shows the right next tick: it would
// count "@every d" from the start of the process. If no spec fits, it shows the entry's own.
func shownSpec(spec string, s cron.Schedule) string {
	d, ok := s.(ticks.Every)
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	switch {
	case !ok:
	case d%minute == 0 && hour%d == 0 && d < hour:
		return fmt.Sprintf("CRON_TZ=UTC */%d * * * *", d/minute)
	case d%hour == 0 && day%d == 0 && d < day:
		return fmt.Sprintf("CRON_TZ=UTC 0 */%d * * *", d/hour)
	case d == day:
		return "CRON_TZ=UTC 0 0 * * *"
	}
	return spec
}

// A due says which ticks of an entry to enqueue, and which are given up.
type due struct {
	run    []time.Time // ticks to enqueue, the oldest first
	late   bool        // some of them are older than the start deadline
	missed int         // how many ticks are given up, from the first one to the last
	first  time.Time
	last   time.Time
}

// dueTicks returns the ticks to enqueue and to give up at now, if the ticks up to last need no
// care. The ticks to enqueue are those that are not older than the deadline, and the newest of the
// others that catch-up wants. They are in the location of now. If more than ticks.MaxIn are in
// time, the next look goes on with the rest.
func dueTicks(s cron.Schedule, last, now time.Time, deadline time.Duration, c int) due {
	from, tooOld := last.In(now.Location()), now.Add(-deadline-1)
	old := ticks.Come(s, from, tooOld, func(time.Time) bool { return true })
	old.Keep(c)
	return due{
		run: append(old.Ticks, ticks.In(s, ticks.Later(from, tooOld), now)...), late: len(old.Ticks) > 0,
		missed: old.Before, first: old.First, last: old.Last,
	}
}
