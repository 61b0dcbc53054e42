package guardcron

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// A counting is a schedule that counts how often it was asked.
type counting struct {
	cron.Schedule
	calls int
}

func (c *counting) Next(t time.Time) time.Time {
	c.calls++
	return c.Schedule.Next(t)
}

// A year of seconds took ten seconds of a processor, of minutes half of that.
func TestCome_ofAYearTakesNoTime(t *testing.T) {
	t.Parallel()
	loc, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	to := time.Date(2026, time.July, 1, 0, 0, 0, 0, loc)
	for title, test := range map[string]struct {
		spec   string
		years  int
		newest time.Time // the oldest of the newest ticks
		all    int       // 0 if they are too many
		jitter time.Duration
	}{
		"seconds":             {spec: "@every 1s", years: 1, newest: to.Add(-999 * time.Second)},
		"minutes with jitter": {spec: "* * * * *", years: 1, newest: to.Add(-1000 * time.Minute), jitter: time.Minute - 1},
		"hours, all of them":  {spec: "0 * * * *", years: 1, newest: to.Add(-999 * time.Hour), all: 365 * 24},
		"one day of the year": {spec: "* * 1 1 *", years: 100, newest: time.Date(2026, time.January, 1, 7, 20, 0, 0, loc)},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c := cron.New(cron.WithLocation(loc))
			schedule, err := cron.ParseStandard(test.spec)
			require.NoError(t, err)
			counts := &counting{Schedule: ticks.Align(schedule)}
			b := &job{jobs: &Jobs{cron: c}, settings: settings{jitter: test.jitter}}
			from := to.AddDate(-test.years, 0, 0)
			come := b.come(counts, from, to)
			require.Len(t, come.Ticks, ticks.MaxIn)
			require.Equal(t, b.startAfter(counts.Schedule, from), b.at(come.First))
			require.WithinDuration(t, test.newest, come.Ticks[0], test.jitter)
			require.WithinRange(t, come.Last, come.Ticks[0].Add(-time.Hour), come.Ticks[0].Add(-1))
			if test.all > 0 {
				require.Equal(t, test.all, come.Before+len(come.Ticks))
				return
			}
			require.Greater(t, come.Before+len(come.Ticks), 90*ticks.MaxIn)
			require.Less(t, counts.calls, 120*ticks.MaxIn)
		})
	}
}
