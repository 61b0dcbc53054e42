package ticks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

func schedule(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	s, err := cron.ParseStandard(spec)
	require.NoError(t, err)
	return ticks.Align(s)
}

func texts(all []time.Time) []string {
	texts := []string{}
	for _, t := range all {
		texts = append(texts, t.UTC().Format(time.RFC3339))
	}
	return texts
}

func TestAlign_constantDelaysAreMultiplesSince1970(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		delay      time.Duration
		from, want string
	}{
		{90 * time.Second, "2026-11-21T08:00:00.5Z", "2026-11-21T08:01:30Z"},
		{90 * time.Second, "2026-11-21T08:01:30Z", "2026-11-21T08:03:00Z"},
		{24 * time.Hour, "2026-11-21T08:00:00Z", "2026-11-22T00:00:00Z"},
		{7 * time.Second, "1969-12-31T23:59:50Z", "1969-12-31T23:59:53Z"},
		{7 * time.Second, "1969-12-31T23:59:53.9Z", "1970-01-01T00:00:00Z"},
		{1500 * time.Millisecond, "2026-11-21T08:00:00Z", "2026-11-21T08:00:01Z"},
		{time.Millisecond, "2026-11-21T08:00:00.999Z", "2026-11-21T08:00:01Z"},
		{0, "2026-11-21T08:00:00Z", "2026-11-21T08:00:01Z"},
		{-time.Hour, "2026-11-21T08:00:00Z", "2026-11-21T08:00:01Z"},
	} {
		next := ticks.Align(cron.ConstantDelaySchedule{Delay: test.delay}).Next(at(t, test.from))
		require.Equal(t, test.want, next.UTC().Format(time.RFC3339Nano), "%v after %s", test.delay, test.from)
	}
}

func TestAlign_keepsOtherSchedulesAndLocations(t *testing.T) {
	t.Parallel()
	spec, err := cron.ParseStandard("0 3 * * *")
	require.NoError(t, err)
	require.Same(t, spec, ticks.Align(spec))
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	require.Equal(t, tokyo, ticks.Every(60).Next(time.Now().In(tokyo)).Location())
}

func TestIn_hasTheUpperEndAndNotTheLower(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		spec, from, to string
		want           []string
	}{
		{"*/5 * * * *", "2026-11-21T08:00:00Z", "2026-11-21T08:10:00Z", []string{"2026-11-21T08:05:00Z", "2026-11-21T08:10:00Z"}},
		{"* * * * *", "2026-11-21T07:59:59.999Z", "2026-11-21T08:00:00.001Z", []string{"2026-11-21T08:00:00Z"}},
		{"0 8 * * *", "2026-11-21T08:00:00Z", "2026-11-22T07:59:59Z", []string{}},
		{"* * * * *", "2026-11-21T08:00:00Z", "2026-11-21T07:00:00Z", []string{}},
		{"0 0 29 2 *", "2026-01-01T00:00:00Z", "2033-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"0 0 30 2 *", "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z", []string{}},
	} {
		require.Equal(t, test.want, texts(ticks.In(schedule(t, test.spec), at(t, test.from), at(t, test.to))), test.spec)
	}
}

func TestIn_isBounded(t *testing.T) {
	t.Parallel()
	from := at(t, "2026-11-21T08:00:00Z")
	all := ticks.In(ticks.Every(1), from, from.Add(time.Hour))
	require.Len(t, all, ticks.MaxIn)
	require.Equal(t, from.Add(time.Second), all[0])
	require.Equal(t, from.Add(ticks.MaxIn*time.Second), all[ticks.MaxIn-1])
	require.Len(t, ticks.In(ticks.Every(1), from, from.Add(999*time.Second)), 999)
}

// stuck is a schedule that does not go on.
type stuck struct{ at time.Time }

func (s stuck) Next(time.Time) time.Time { return s.at }

func TestIn_endsWithAScheduleThatDoesNotGoOn(t *testing.T) {
	t.Parallel()
	from := at(t, "2026-11-21T08:00:00Z")
	require.Len(t, ticks.In(stuck{from.Add(time.Second)}, from, from.Add(time.Hour)), 1)
	require.Empty(t, ticks.In(stuck{from}, from, from.Add(time.Hour)))
	shortest, longest := ticks.Periods(stuck{from}, from)
	require.Zero(t, shortest)
	require.Zero(t, longest)
}

// Where two processes begin to look at different instants, they must see the same ticks.
func TestIn_doesNotDependOnWhereTheLookBegins(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "America/Santiago", "Africa/Cairo", "Asia/Kathmandu"} {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, spec := range []string{"*/7 * * * *", "15 */2 * * *", "30 2 * * *", "30 1 * * *", "@hourly", "@daily", "@every 47s", "@every 3h"} {
			for _, begin := range []string{"2026-03-07T20:00:00Z", "2026-03-28T18:00:00Z", "2026-04-04T18:00:00Z", "2026-04-23T16:00:00Z", "2026-11-01T00:00:00Z"} {
				from := at(t, begin).In(loc)
				to := from.Add(12 * time.Hour)
				all := ticks.In(schedule(t, spec), from, to)
				for _, late := range []time.Duration{time.Minute, 3*time.Hour + 17*time.Second, 6 * time.Hour} {
					later := slices.DeleteFunc(slices.Clone(all), func(tick time.Time) bool { return !tick.After(from.Add(late)) })
					some := ticks.In(schedule(t, spec), from.Add(late), to)
					if len(all) == ticks.MaxIn {
						some = some[:min(len(some), len(later))]
					}
					require.Equal(t, texts(later), texts(some), "%s in %s, %v after %s", spec, zone, late, begin)
				}
			}
		}
	}
}

func TestPeriods_areNotTheTimesBetweenTheNextFewTicks(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, test := range []struct {
		spec     string
		shortest time.Duration
		longest  time.Duration
	}{
		{"* * * * *", time.Minute, time.Minute},
		{"@every 1s", time.Second, time.Second},
		{"0 3 * * *", day, day},
		{"0 9-17 * * 1-5", time.Hour, 64 * time.Hour},
		{"*/5 0-9,11-23 * * *", 5 * time.Minute, 65 * time.Minute},
		{"* 9-16 * * *", time.Minute, 16*time.Hour + time.Minute},
		{"* * 1 * *", time.Minute, 30*day + time.Minute},
		{"* 9 1 1 *", time.Minute, 366*day - time.Hour + time.Minute},
		{"*/5 * * 1-6 *", 5 * time.Minute, 184*day + 5*time.Minute},
		{"0 0 29 2 *", 1461 * day, 1461 * day},
		{"0,50 3 * * *", 50 * time.Minute, 23*time.Hour + 10*time.Minute},
	} {
		s := schedule(t, test.spec)
		// a Monday, a Thursday, a Saturday
		for _, from := range []string{"2026-11-16T08:30:00Z", "2026-11-19T08:30:00Z", "2026-11-21T12:00:00Z"} {
			shortest, longest := ticks.Periods(s, s.Next(at(t, from)))
			require.Equal(t, test.shortest, shortest, "%s from %s", test.spec, from)
			require.LessOrEqual(t, longest, test.longest, "%s from %s", test.spec, from)
			require.GreaterOrEqual(t, longest, test.longest/2, "%s from %s", test.spec, from)
		}
	}
}

// everyHour is a schedule that is no other's type.
type everyHour struct{ times int }

func (e everyHour) Next(t time.Time) time.Time {
	return t.Truncate(time.Hour / time.Duration(e.times)).Add(time.Hour / time.Duration(e.times))
}

func TestFingerprint_isThatOfTheTicks(t *testing.T) {
	t.Parallel()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	type one struct {
		schedule cron.Schedule
		loc      *time.Location
	}
	for _, same := range [][2]one{
		{{schedule(t, "0 3 * * *"), time.UTC}, {schedule(t, "00 3 * * *"), time.UTC}},
		{{schedule(t, "@hourly"), time.UTC}, {schedule(t, "0 * * * *"), time.UTC}},
		{{schedule(t, "@every 90s"), time.UTC}, {schedule(t, "@every 1m30s"), tokyo}},
		{{everyHour{2}, time.UTC}, {everyHour{2}, time.UTC}},
	} {
		require.Equal(t, ticks.Fingerprint(same[0].schedule, same[0].loc), ticks.Fingerprint(same[1].schedule, same[1].loc), same)
	}
	seen := map[string]int{}
	for i, other := range []one{
		{schedule(t, "0 3 * * *"), time.UTC},
		{schedule(t, "0 3 * * *"), tokyo},
		{schedule(t, "0 12 * * *"), time.UTC},
		{schedule(t, "0 3 * * 1-5"), time.UTC},
		{schedule(t, "0 3 * 1-11 *"), time.UTC},
		{schedule(t, "@every 90s"), time.UTC},
		{schedule(t, "@every 91s"), time.UTC},
		{everyHour{1}, time.UTC},
		{everyHour{2}, time.UTC},
		{stuck{}, time.UTC},
	} {
		f := ticks.Fingerprint(other.schedule, other.loc)
		require.NotEmpty(t, f)
		require.NotContains(t, seen, f, "%d is %d", i, seen[f])
		seen[f] = i
	}
}

func TestText_hasTheSameTicksWhenItIsRead(t *testing.T) {
	t.Parallel()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	seconds, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("*/20 5 * * * *")
	require.NoError(t, err)
	for _, of := range []struct {
		schedule cron.Schedule
		loc      *time.Location
	}{
		{schedule(t, "*/7 * * * *"), time.UTC},
		{schedule(t, "30 3 * * *"), tokyo},
		{schedule(t, "CRON_TZ=America/New_York 30 1 * * *"), nil},
		{schedule(t, "@every 47m"), time.UTC},
		{seconds, time.UTC},
	} {
		loc := ticks.Location(of.schedule, of.loc)
		read := ticks.Parse(ticks.Text(of.schedule, loc))
		has := func(tick time.Time) bool { return read.Next(tick.Add(-1)).Equal(tick) }
		from := at(t, "2026-10-31T08:00:00Z").In(loc)
		all := ticks.In(of.schedule, from, from.Add(48*time.Hour))
		require.NotEmpty(t, all)
		for _, tick := range all {
			require.True(t, has(tick), tick)
			require.True(t, has(tick.UTC()), tick)
			require.False(t, has(tick.Add(time.Second)), tick)
			require.False(t, has(tick.Add(time.Millisecond)), tick)
		}
	}
}

func TestText_thatIsNotKnownHasNoTick(t *testing.T) {
	t.Parallel()
	require.Empty(t, ticks.Text(everyHour{1}, time.UTC))
	odd := ticks.Text(schedule(t, "* * * * *"), time.FixedZone("nowhere", 3600))
	for _, text := range []string{"", "{}", "[]", "garbage", odd} {
		require.Zero(t, ticks.Parse(text).Next(at(t, "2026-11-21T08:00:00Z")), text)
	}
}
