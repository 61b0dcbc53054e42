package guardasynq

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// tickClock returns the time. It has no monotonic reading: ticks are instants of the wall clock.
func tickClock() time.Time { return time.Now().Round(0) }

// parseTicks returns the schedule of a spec, and the spec by which asynq is to fire.
func parseTicks(spec string) (schedule cron.Schedule, firing string, err error) {
	if (strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")) && !strings.Contains(spec, " ") {
		// on which the parser panics
		return nil, "", fmt.Errorf("there is no schedule behind the time zone")
	}
	schedule, err = cron.ParseStandard(spec)
	if err != nil {
		return nil, "", err
	}
	schedule = ticks.Align(schedule)
	if every, ok := schedule.(ticks.Every); ok {
		return every, firingAt(every), nil
	}
	return schedule, spec, nil
}

// firingAt returns a spec that fires at these ticks: with nothing but the start of the process to
// count from, asynq would fire between them, and a process that is replaced by another one in that
// time would take its tick with it. It fires more often where no spec fits.
func firingAt(d ticks.Every) string {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	switch {
	case d%minute == 0 && hour%d == 0 && d < hour:
		return fmt.Sprintf("CRON_TZ=UTC */%d * * * *", d/minute)
	case d%hour == 0 && day%d == 0 && d < day:
		return fmt.Sprintf("CRON_TZ=UTC 0 */%d * * *", d/hour)
	case d%day == 0:
		return "CRON_TZ=UTC 0 0 * * *"
	}
	return "@every 1s"
}

// dueTicks returns the ticks to enqueue at now, in a process that has seen to those up to last.
// All of them count as seen to afterwards, also those that are too old. The firing does not say
// which tick it is for.
func dueTicks(s cron.Schedule, last, now time.Time, catchUp time.Duration) (due []time.Time, seen time.Time) {
	from := now.Add(-max(catchUp, tickLate))
	if from.Before(last) {
		from = last.In(now.Location()) // which is the schedule's
	}
	come := ticks.In(s, from, now) // at most ticks.Most: the next firing goes on from there
	if len(come) == 0 {            // also after the clock was set back
		return nil, last
	}
	newest := len(come) - 1
	for i, t := range come {
		if i == newest || !t.Before(now.Add(-catchUp)) {
			return come[i:], come[newest]
		}
	}
	return nil, last
}
