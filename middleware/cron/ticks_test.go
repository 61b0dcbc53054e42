package guardcron_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestTick_isThatOfTheSchedule(t *testing.T) {
	t.Parallel()
	tokyo := cron.WithLocation(zone(t, "Asia/Tokyo"))
	for title, test := range map[string]struct {
		of         setup
		spec       string
		begin, end string
		want       []string
	}{
		"each second": {setup{cron: []cron.Option{cron.WithSeconds()}}, "*/10 * * * * *", "2026-06-15T12:00:01Z", "2026-06-15T12:00:31Z",
			[]string{"2026-06-15T12:00:10Z", "2026-06-15T12:00:20Z", "2026-06-15T12:00:30Z"}},
		"in the location of the Cron":          {setup{cron: []cron.Option{tokyo}}, "0 9 * * *", noon, "2026-06-16T12:00:00Z", []string{"2026-06-16T00:00:00Z"}},
		"in that of the spec":                  {setup{cron: []cron.Option{tokyo}}, "CRON_TZ=Asia/Kolkata 0 9 * * *", noon, "2026-06-16T12:00:00Z", []string{"2026-06-16T03:30:00Z"}},
		"a delay, from 1970 on":                {setup{}, "@every 7m", "2026-06-15T12:01:03Z", "2026-06-15T12:20:00Z", []string{"2026-06-15T12:02:00Z", "2026-06-15T12:09:00Z", "2026-06-15T12:16:00Z"}},
		"a delay takes no notice of locations": {setup{cron: []cron.Option{tokyo}}, "@every 24h", noon, "2026-06-17T12:00:00Z", []string{"2026-06-16T00:00:00Z", "2026-06-17T00:00:00Z"}},
		"each year":                            {setup{}, "@yearly", "2026-12-31T23:00:00Z", "2027-01-03T00:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		"each month":                           {setup{}, "@monthly", "2027-01-31T23:00:00Z", "2027-02-03T00:00:00Z", []string{"2027-02-01T00:00:00Z"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, test.begin, func(s *site) {
				var all []*process
				for i, skew := range []int{900, -900, 300, 0, -300} {
					of := test.of
					of.skew = time.Duration(skew) * time.Millisecond
					p := s.process(string(rune('a'+i)), of)
					p.add("job", test.spec, func(ctx context.Context) error {
						tick, ok := guardcron.Tick(ctx)
						require.True(s.t, ok)
						require.Equal(s.t, time.UTC, tick.Location())
						return nil
					})
					p.cron.Start()
					all = append(all, p)
				}
				s.until(test.end)
				s.sleep(time.Second)
				require.Equal(s.t, test.want, s.ticks())
				for _, r := range all[0].records("job") {
					require.Equal(s.t, "a", r.Who, "the one that is ahead runs them")
				}
			})
		})
	}
}

func TestTick_onlyInTheContextOfAJob(t *testing.T) {
	t.Parallel()
	tick, ok := guardcron.Tick(t.Context())
	require.False(t, ok)
	require.Zero(t, tick)
}

// Processes that start at different instants have no tick of a cron.ConstantDelaySchedule in
// common, unless it is aligned.
func TestSchedule_constantDelaysAreTheSameInAllProcesses(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		for _, who := range []string{"a", "b", "c"} {
			p := s.process(who, setup{})
			_, err := p.Schedule("job", cron.Every(10*time.Minute), p.noting(nil))
			require.NoError(s.t, err)
			p.cron.Start()
			s.sleep(77 * time.Second)
		}
		s.until("2026-06-15T12:31:00Z")
		require.Equal(s.t, []string{"2026-06-15T12:10:00Z", "2026-06-15T12:20:00Z", "2026-06-15T12:30:00Z"}, s.ticks())
	})
}

// halves is a schedule with two ticks in each second.
type halves struct{}

func (halves) Next(t time.Time) time.Time { return t.Truncate(time.Second / 2).Add(time.Second / 2) }

func TestSchedule_ticksOfLessThanASecond(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]guardcron.Option{nil, {guardcron.WithLocalTicks()}} {
		onSite(t, noon, func(s *site) {
			for _, who := range []string{"a", "b"} {
				p := s.process(who, setup{})
				_, err := p.Schedule("job", halves{}, p.noting(nil), opts...)
				require.NoError(s.t, err)
				p.cron.Start()
			}
			s.sleep(2 * time.Second)
			require.ElementsMatch(s.t, []string{"2026-06-15T12:00:30.5Z", "2026-06-15T12:00:31Z", "2026-06-15T12:00:31.5Z", "2026-06-15T12:00:32Z"}, s.ticks())
		})
	}
}

// A user may show the next five runs of each job.
func TestNext_calledByOthersChangesNothing(t *testing.T) {
	t.Parallel()
	onSite(t, "2026-06-15T12:00:30Z", func(s *site) {
		p := s.process("a", setup{})
		id := p.add("job", "* * * * *", nil, guardcron.WithCatchUp(10))
		p.cron.Start()
		for range 20 {
			var next []string
			at := time.Now()
			for range 5 {
				at = p.cron.Entry(id).Schedule.Next(at)
				next = append(next, at.Add(s.base).UTC().Format(time.TimeOnly))
			}
			first := s.now().Truncate(time.Minute).Add(time.Minute)
			require.Equal(s.t, first.Format(time.TimeOnly), next[0])
			require.Equal(s.t, first.Add(4*time.Minute).Format(time.TimeOnly), next[4])
			_ = p.cron.Entry(id).Schedule.Next(time.Time{})
			s.sleep(17 * time.Second)
		}
		require.Equal(s.t, every(s.t, time.Minute, "2026-06-15T12:01:00Z", "2026-06-15T12:06:00Z"), s.ticks())
		require.Equal(s.t, every(s.t, time.Minute, "2026-06-15T12:01:00Z", "2026-06-15T12:06:00Z"), s.times())
	})
}

// A process that was suspended finds that ticks have passed: cron fires once.
func TestFiring_thatIsLate(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil, guardcron.WithStartDeadline(150*time.Second), guardcron.WithObserver(o.record))
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		s.forget()
		guardcron.SetClock(p.Jobs, s.base+5*time.Minute) // it is 12:06:30 then
		s.until("2026-06-15T12:02:10Z")
		require.Equal(s.t, []string{"2026-06-15T12:05:00Z", "2026-06-15T12:06:00Z", "2026-06-15T12:07:00Z"}, s.ticks(), "those that can still be started")
		require.ElementsMatch(s.t, []string{"12:01:00 ran", "12:02:00-12:04:00 missed", "12:05:00 ran", "12:06:00 ran", "12:07:00 ran"},
			o.outcomes())
	})
}

// A tick that is too late to start is reported in ten seconds, and not when the next one comes.
func TestFiring_thatIsTooLate(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed recorder
		p := s.process("a", setup{guard: inNamespace})
		p.add("job", "0 * * * *", nil, onMissed(missed.record))
		p.cron.Start()
		s.until("2026-06-15T12:59:01Z")
		guardcron.SetClock(p.Jobs, s.base+2*time.Minute+time.Second)
		s.until("2026-06-15T12:59:11Z")
		require.Empty(s.t, s.ticks())
		require.Equal(s.t, []string{"13:00:00 missed"}, missed.outcomes())
		s.until("2026-06-15T13:58:00Z")
		require.Equal(s.t, []string{"2026-06-15T14:00:00Z"}, s.ticks())
	})
}

func TestFiring_clockThatIsSetBack(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:03:30Z")
		s.forget()
		guardcron.SetClock(p.Jobs, s.base-150*time.Second) // it is 12:01:00 then
		s.until("2026-06-15T12:06:20Z")
		require.Empty(s.t, s.ticks(), "no tick is run again")
		s.until("2026-06-15T12:07:40Z")
		require.Equal(s.t, []string{"2026-06-15T12:04:00Z", "2026-06-15T12:05:00Z"}, s.ticks())
		require.Equal(s.t, []string{"2026-06-15T12:06:30Z", "2026-06-15T12:07:30Z"}, s.times(), "by its own clock")
	})
}

func TestStart_afterStop(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed recorder
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil, guardcron.WithStartDeadline(80*time.Second), onMissed(missed.record))
		for range 3 {
			p.cron.Start()
			s.sleep(2*time.Minute + 20*time.Second)
			<-p.cron.Stop().Done()
			s.sleep(3*time.Minute + 40*time.Second)
		}
		p.cron.Start()
		s.sleep(time.Minute)
		require.Equal(s.t, []string{
			"2026-06-15T12:01:00Z", "2026-06-15T12:02:00Z",
			"2026-06-15T12:06:00Z", "2026-06-15T12:07:00Z", "2026-06-15T12:08:00Z",
			"2026-06-15T12:12:00Z", "2026-06-15T12:13:00Z", "2026-06-15T12:14:00Z",
			"2026-06-15T12:18:00Z", "2026-06-15T12:19:00Z",
		}, s.ticks(), "the last one of a stop can still be started")
		require.Equal(s.t, []string{"12:03:00-12:05:00 missed", "12:09:00-12:11:00 missed", "12:15:00-12:17:00 missed"}, missed.outcomes(), "each once")
	})
}

// A clock was two hours ahead when the process started.
func TestFiring_clockThatWasWrongAtTheStart(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{skew: 2 * time.Hour})
		p.add("job", "*/10 * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		guardcron.SetClock(p.Jobs, s.base)
		s.until("2026-06-15T12:31:00Z")
		require.Equal(s.t, every(s.t, 10*time.Minute, "2026-06-15T12:10:00Z", "2026-06-15T12:30:00Z"), s.ticks())
	})
}
