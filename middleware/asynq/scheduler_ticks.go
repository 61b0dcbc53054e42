package guardasynq

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// mostTicks bounds how many ticks one firing enqueues. The next one goes on from there.
const mostTicks = 1000

// tickClock returns the time. It has no monotonic reading: ticks are instants of the wall clock.
func tickClock() time.Time { return time.Now().Round(0) }

// parseTicks returns the schedule of a spec, and the spec by which asynq is to fire.
func parseTicks(spec string) (schedule cron.Schedule, firing string, err error) {
	if (strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")) && !strings.Contains(spec, " ") {
		return nil, "", fmt.Errorf("there is no schedule behind the time zone") // on which the parser panics
	}
	schedule, err = cron.ParseStandard(spec)
	if err != nil {
		return nil, "", err
	}
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		aligned := alignedTicks(every.Delay / time.Second)
		return aligned, aligned.firing(), nil
	}
	return schedule, spec, nil
}

// alignedTicks is the schedule of "@every d", in seconds: the multiples of d since 1970. That of cron counts from the start of each
// process, so that processes would have no tick in common.
type alignedTicks int64

func (d alignedTicks) Next(t time.Time) time.Time {
	into := t.Unix() % int64(d)
	if into < 0 {
		into += int64(d)
	}
	return time.Unix(t.Unix()-into+int64(d), 0).In(t.Location())
}

// firing returns a spec that fires at these ticks: with nothing but the start of the process to count from, asynq would fire between
// them, and a process that is replaced by another one in that time would take its tick with it. It fires more often where no spec fits.
func (d alignedTicks) firing() string {
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

// ticksIn returns the ticks of a schedule after from, up to and including to, the oldest first: at most mostTicks.
func ticksIn(s cron.Schedule, from, to time.Time) []time.Time {
	var ticks []time.Time
	for len(ticks) < mostTicks {
		t := s.Next(from)
		if !t.After(from) || t.After(to) { // Next returns the zero time where it has found none for five years
			break
		}
		ticks = append(ticks, t)
		from = t
	}
	return ticks
}

// dueTicks returns the ticks to enqueue at now, in a process that has seen to those up to last. All of them count as seen to afterwards,
// also those that are too old. The firing does not say which tick it is for.
func dueTicks(s cron.Schedule, last, now time.Time, catchUp time.Duration) (due []time.Time, seen time.Time) {
	from := now.Add(-max(catchUp, tickLate))
	if from.Before(last) {
		from = last.In(now.Location()) // which is the schedule's
	}
	ticks := ticksIn(s, from, now)
	if len(ticks) == 0 { // also after the clock was set back
		return nil, last
	}
	newest := len(ticks) - 1
	for i, t := range ticks {
		if i == newest || !t.Before(now.Add(-catchUp)) {
			return ticks[i:], ticks[newest]
		}
	}
	return nil, last
}
