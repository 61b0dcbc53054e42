package guardscheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// tickAt parses an instant.
func tickAt(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

func tickZone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// tickTexts prints instants in UTC.
func tickTexts(ticks []time.Time) []string {
	texts := []string{}
	for _, t := range ticks {
		texts = append(texts, t.UTC().Format(time.RFC3339))
	}
	return texts
}

func TestTicks_areTheInstantsOfTheSchedule(t *testing.T) {
	t.Parallel()
	const newYork = "America/New_York"
	for _, test := range []struct {
		name, spec, zone, from, to string
		want                       []string
	}{
		{"the upper end is in, the lower is not", "*/5 * * * *", "UTC", "2026-11-21T08:00:00Z", "2026-11-21T08:10:00Z",
			[]string{"2026-11-21T08:05:00Z", "2026-11-21T08:10:00Z"}},
		{"fractions of seconds", "* * * * *", "UTC", "2026-11-21T07:59:59.999Z", "2026-11-21T08:00:00.001Z", []string{"2026-11-21T08:00:00Z"}},
		{"none", "0 8 * * *", "UTC", "2026-11-21T08:00:00Z", "2026-11-22T07:59:59Z", nil},
		{"a range that ends before it begins", "* * * * *", "UTC", "2026-11-21T08:00:00Z", "2026-11-21T07:00:00Z", nil},
		{"the location counts", "30 8 * * *", "Asia/Kolkata", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", []string{"2026-11-21T03:00:00Z"}},
		{"the zone of the spec goes before the location", "CRON_TZ=Asia/Tokyo 0 9 * * *", newYork, "2026-11-20T12:00:00Z", "2026-11-21T12:00:00Z",
			[]string{"2026-11-21T00:00:00Z"}},
		{"TZ as well", "TZ=Asia/Tokyo 0 9 * * *", newYork, "2026-11-20T12:00:00Z", "2026-11-21T12:00:00Z", []string{"2026-11-21T00:00:00Z"}},
		{"an hour that does not exist", "30 2 * * *", newYork, "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z", []string{"2026-03-09T06:30:00Z"}},
		{"an hour that comes twice", "30 1 * * *", newYork, "2026-10-31T12:00:00Z", "2026-11-01T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"}},
		{"each hour while clocks go forward", "@hourly", newYork, "2026-03-08T05:30:00Z", "2026-03-08T08:30:00Z",
			[]string{"2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"}},
		{"each hour while clocks go back", "@hourly", newYork, "2026-11-01T04:30:00Z", "2026-11-01T07:30:00Z",
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"}},
		{"the day on which midnight moves", "@daily", newYork, "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z",
			[]string{"2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"}},
		{"months without that day", "0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", "2026-06-01T00:00:00Z",
			[]string{"2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"}},
		{"leap days", "0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2033-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"a day that never comes", "0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z", nil},
		{"every", "@every 90s", "UTC", "2026-11-21T08:00:00.5Z", "2026-11-21T08:03:00Z", []string{"2026-11-21T08:01:30Z", "2026-11-21T08:03:00Z"}},
		{"every takes no notice of the location", "@every 24h", "Asia/Kolkata", "2026-11-21T08:00:00Z", "2026-11-22T08:00:00Z", []string{"2026-11-22T00:00:00Z"}},
		{"every is whole seconds, as cron has it", "@every 1500ms", "UTC", "2026-11-21T08:00:00Z", "2026-11-21T08:00:02Z",
			[]string{"2026-11-21T08:00:01Z", "2026-11-21T08:00:02Z"}},
		{"every before 1970", "@every 7s", "UTC", "1969-12-31T23:59:50Z", "1970-01-01T00:00:01Z", []string{"1969-12-31T23:59:53Z", "1970-01-01T00:00:00Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			zone := tickZone(t, test.zone)
			ticks, err := guardscheduler.TicksIn(test.spec, tickAt(t, test.from).In(zone), tickAt(t, test.to).In(zone))
			require.NoError(t, err)
			require.Equal(t, append([]string{}, test.want...), tickTexts(ticks))
		})
	}
}

// Where two processes begin to look at different instants, they must see the same ticks.
func TestTicks_doNotDependOnWhereTheLookBegins(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "America/New_York", "Australia/Lord_Howe"} {
		for _, spec := range []string{"*/7 * * * *", "15 */2 * * *", "30 2 * * *", "@hourly", "@daily", "@every 7m", "@every 3h"} {
			for _, begin := range []string{"2026-03-07T20:00:00Z", "2026-04-04T00:00:00Z", "2026-10-03T00:00:00Z", "2026-11-01T00:00:00Z"} {
				from := tickAt(t, begin).In(tickZone(t, zone))
				to := from.Add(12 * time.Hour)
				all, err := guardscheduler.TicksIn(spec, from, to)
				require.NoError(t, err)
				for _, late := range []time.Duration{time.Minute, 3*time.Hour + 17*time.Second, 6 * time.Hour} {
					some, err := guardscheduler.TicksIn(spec, from.Add(late), to)
					require.NoError(t, err)
					later := slices.DeleteFunc(slices.Clone(all), func(tick time.Time) bool { return !tick.After(from.Add(late)) })
					require.Equal(t, tickTexts(later), tickTexts(some), "%s in %s, %v after %s", spec, zone, late, begin)
				}
			}
		}
	}
}

func TestTicks_due(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, spec, last, now string
		deadline              time.Duration
		catchUp               int
		run                   []string
		missed                string // "n first last"
	}{
		{"the tick itself", "* * * * *", "2026-11-21T08:00:00Z", "2026-11-21T08:01:00.004Z", time.Minute, 0, []string{"2026-11-21T08:01:00Z"}, ""},
		{"a tick is seen to once", "* * * * *", "2026-11-21T08:01:00Z", "2026-11-21T08:01:00.004Z", time.Minute, 0, nil, ""},
		{"a clock that was set back", "* * * * *", "2026-11-21T08:01:00Z", "2026-11-21T07:01:00.004Z", time.Minute, 0, nil, ""},
		{"between ticks", "@every 1h", "2026-11-21T08:00:00Z", "2026-11-21T08:20:00Z", time.Minute, 0, nil, ""},
		{"a day that never comes", "0 0 30 2 *", "2026-11-21T08:00:00Z", "2026-11-21T08:20:00Z", time.Minute, 0, nil, ""},
		{"after a pause, all in order", "@every 1s", "2026-11-21T08:00:00Z", "2026-11-21T08:00:04.5Z", time.Minute, 0,
			[]string{"2026-11-21T08:00:01Z", "2026-11-21T08:00:02Z", "2026-11-21T08:00:03Z", "2026-11-21T08:00:04Z"}, ""},
		{"a tick as old as the deadline", "* * * * *", "2026-11-21T08:57:00Z", "2026-11-21T09:00:00Z", 2 * time.Minute, 0,
			[]string{"2026-11-21T08:58:00Z", "2026-11-21T08:59:00Z", "2026-11-21T09:00:00Z"}, ""},
		{"older ones are missed", "* * * * *", "2026-11-21T08:00:00Z", "2026-11-21T09:00:30Z", 2 * time.Minute, 0,
			[]string{"2026-11-21T08:59:00Z", "2026-11-21T09:00:00Z"}, "58 2026-11-21T08:01:00Z 2026-11-21T08:58:00Z"},
		{"one is missed", "0 8 * * *", "2026-11-21T07:00:00Z", "2026-11-21T09:30:00Z", time.Minute, 0, nil, "1 2026-11-21T08:00:00Z 2026-11-21T08:00:00Z"},
		{"one is caught up with", "0 8 * * *", "2026-11-21T07:00:00Z", "2026-11-21T09:30:00Z", time.Minute, 1, []string{"2026-11-21T08:00:00Z"}, ""},
		{"the newest of the old, and what is in time", "@every 10m", "2026-11-21T08:00:00Z", "2026-11-21T09:00:30Z", time.Minute, 1,
			[]string{"2026-11-21T08:50:00Z", "2026-11-21T09:00:00Z"}, "4 2026-11-21T08:10:00Z 2026-11-21T08:40:00Z"},
		{"some of the old", "@every 10m", "2026-11-21T08:00:00Z", "2026-11-21T09:05:00Z", time.Minute, 2,
			[]string{"2026-11-21T08:50:00Z", "2026-11-21T09:00:00Z"}, "4 2026-11-21T08:10:00Z 2026-11-21T08:40:00Z"},
		{"more than there are", "@every 10m", "2026-11-21T08:00:00Z", "2026-11-21T08:25:00Z", time.Minute, 1000,
			[]string{"2026-11-21T08:10:00Z", "2026-11-21T08:20:00Z"}, ""},
		{"more than one look", "@every 1s", "2026-11-21T08:00:00Z", "2026-11-21T09:00:00Z", time.Second, 1,
			[]string{"2026-11-21T08:59:58Z", "2026-11-21T08:59:59Z", "2026-11-21T09:00:00Z"}, "3597 2026-11-21T08:00:01Z 2026-11-21T08:59:57Z"},
		{"years", "@every 1s", "2016-11-21T08:00:00Z", "2026-11-21T08:00:00Z", time.Second, 0,
			[]string{"2026-11-21T07:59:59Z", "2026-11-21T08:00:00Z"}, "100000 2016-11-21T08:00:01Z 2026-11-21T07:59:58Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := guardscheduler.DueTicks(test.spec, tickAt(t, test.last), tickAt(t, test.now), test.deadline, test.catchUp)
			require.NoError(t, err)
			require.Equal(t, append([]string{}, test.run...), tickTexts(d.Run))
			missed := ""
			if d.Missed > 0 {
				missed = strings.Join(append([]string{fmt.Sprint(d.Missed)}, tickTexts([]time.Time{d.First, d.Last})...), " ")
			}
			require.Equal(t, test.missed, missed)
		})
	}
}

func TestTicks_areInTheZoneOfTheScheduler(t *testing.T) {
	t.Parallel()
	last := tickAt(t, "2026-11-21T02:59:30Z") // in UTC, as a clock may have it
	now := tickAt(t, "2026-11-21T03:00:00.1Z").In(tickZone(t, "Asia/Kolkata"))
	d, err := guardscheduler.DueTicks("30 8 * * *", last, now, time.Minute, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"2026-11-21T03:00:00Z"}, tickTexts(d.Run))
}

// A day of looks, late and with pauses: every tick comes once and in order.
func TestTicks_noneIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		dice := rand.New(rand.NewPCG(seed, 1))
		spec := []string{"* * * * *", "*/5 * * * *", "@every 7s", "@every 90m", "30 1 * * *"}[seed%5]
		zone := tickZone(t, []string{"UTC", "America/New_York"}[seed/5%2])
		from := tickAt(t, "2026-11-01T00:00:00Z").In(zone)
		to := from.Add(24 * time.Hour)
		var got []time.Time
		last, now := from, from
		for now.Before(to) {
			now = now.Add(time.Duration(dice.Int64N(int64(100 * time.Second))))
			d, err := guardscheduler.DueTicks(spec, last, now, 100*time.Second, 0)
			require.NoError(t, err)
			require.Zero(t, d.Missed)
			if got = append(got, d.Run...); len(d.Run) > 0 {
				last = d.Run[len(d.Run)-1]
			}
		}
		var want []time.Time
		for at := from; ; {
			some, err := guardscheduler.TicksIn(spec, at, now)
			require.NoError(t, err)
			if len(some) == 0 {
				break
			}
			want, at = append(want, some...), some[len(some)-1]
		}
		require.Equal(t, tickTexts(want), tickTexts(got), "%s, seed %d", spec, seed)
	}
}

func TestTicks_asynqShowsTheNextOne(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"@every 1s":                 "@every 1s",
		"@every 1m":                 "CRON_TZ=UTC */1 * * * *",
		"@every 15m":                "CRON_TZ=UTC */15 * * * *",
		"@every 7m":                 "@every 7m",
		"@every 1h":                 "CRON_TZ=UTC 0 */1 * * *",
		"@every 6h":                 "CRON_TZ=UTC 0 */6 * * *",
		"@every 5h":                 "@every 5h",
		"@every 24h":                "CRON_TZ=UTC 0 0 * * *",
		"@every 48h":                "@every 48h",
		"CRON_TZ=Asia/Tokyo @daily": "CRON_TZ=Asia/Tokyo @daily",
		"5 4 * * *":                 "5 4 * * *",
	} {
		shown, err := guardscheduler.ShownSpec(spec)
		require.NoError(t, err)
		require.Equal(t, want, shown, spec)
		fires, err := cron.ParseStandard(shown)
		require.NoError(t, err)
		if _, fromStart := fires.(cron.ConstantDelaySchedule); fromStart {
			continue
		}
		from := tickAt(t, "2026-11-20T00:00:00Z")
		ticks, err := guardscheduler.TicksIn(spec, from, from.Add(49*time.Hour))
		require.NoError(t, err)
		require.NotEmpty(t, ticks, spec)
		for _, tick := range ticks {
			require.Equal(t, tick.UTC(), fires.Next(tick.Add(-time.Second)).UTC(), spec)
		}
	}
}

func TestTicks_namesAreTheSameForAllVersions(t *testing.T) {
	t.Parallel()
	tick := tickAt(t, "2026-11-21T08:00:00Z").In(tickZone(t, "Asia/Tokyo"))
	id, key := guardscheduler.TickNames(asynq.NewTask("report:build", []byte("7")), tick)
	require.Equal(t, "report:build@2026-11-21T08:00:00Z~k2tupns5ael3hagg", id)
	require.Equal(t, "asynq-tick:"+id, key)

	same, _ := guardscheduler.TickNames(asynq.NewTaskWithHeaders("report:build", []byte("7"), map[string]string{"version": "2"}), tick.UTC(), asynq.Queue("low"))
	require.Equal(t, id, same)
	other, _ := guardscheduler.TickNames(asynq.NewTask("report:build", []byte("8")), tick)
	require.NotEqual(t, id, other)
	named, _ := guardscheduler.TickNames(asynq.NewTask("report:build", []byte("7")), tick, guardscheduler.TickName("eu"))
	require.NotEqual(t, id, named)

	for _, kind := range []string{"{a}", "a\x00b", strings.Repeat("long", 500)} {
		id, key := guardscheduler.TickNames(asynq.NewTask(kind, nil), tick)
		require.True(t, strings.HasPrefix(id, kind+"@"))
		require.NoError(t, driver.CheckKey(key))
	}
	require.Contains(t, fmt.Sprint(guardscheduler.TickName("eu")), "(", "without a bracket asynq's Inspector panics")
}
