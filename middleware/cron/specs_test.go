package guardcron_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Ticks that a process with another spec has run do not count among those to catch up with.
func TestCatchUp_countsNoTickThatAnotherSpecHasRun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed recorder
		hourly, p := s.process("hourly", setup{}), s.process("p", setup{})
		hourly.add("job", "0 * * * *", nil)
		hourly.cron.Start()
		p.add("job", "*/20 * * * *", nil, guardcron.WithCatchUp(3), onMissed(missed.record))
		p.cron.Start()
		s.until("2026-06-15T13:10:00Z")
		s.forget()
		p.line.cut.Store(true)
		s.until("2026-06-15T15:10:00Z")
		p.line.cut.Store(false)
		s.until("2026-06-15T15:12:00Z")
		require.Equal(s.t, []string{
			"2026-06-15T13:40:00Z", "2026-06-15T14:00:00Z", "2026-06-15T14:20:00Z", "2026-06-15T14:40:00Z", "2026-06-15T15:00:00Z",
		}, s.ticks())
		require.Equal(s.t, []string{"13:20:00 missed"}, missed.outcomes())
	})
}

// The clock of a process with another spec is set a day ahead, and it marks the ticks of that day.
// That says nothing of the ticks that come.
func TestMissed_whateverAClockThatIsAheadHasMarked(t *testing.T) {
	t.Parallel()
	for title, hourlyFirst := range map[string]bool{"an older spec": true, "a newer spec": false} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				hourly, p := s.process("hourly", setup{}), s.process("p", setup{})
				hourly.add("job", "0 * * * *", nil)
				p.add("job", "*/20 * * * *", nil)
				if hourlyFirst {
					hourly.cron.Start()
					s.sleep(time.Second)
				}
				p.cron.Start()
				s.sleep(time.Second)
				hourly.cron.Start()
				s.until("2026-06-15T13:10:00Z")
				p.end()
				guardcron.SetClock(hourly.Jobs, s.base+24*time.Hour)
				s.until("2026-06-15T13:11:00Z")
				hourly.end()
				s.until("2026-06-15T18:10:00Z")
				var missed recorder
				p = s.process("next", setup{})
				p.add("job", "*/20 * * * *", nil, onMissed(missed.record))
				p.cron.Start()
				s.sleep(time.Minute)
				require.Equal(s.t, []string{"13:20:00-18:00:00 missed"}, missed.outcomes())
			})
		})
	}
}

// A process is cut off. Meanwhile, another one with its spec starts, and finds that a newer spec
// has replaced that. The ticks of the process that is cut off are not lost.
func TestOutage_ofAProcessWhoseSpecWasReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed recorder
		a, newer := s.process("a", setup{}), s.process("newer", setup{})
		a.add("job", "*/20 * * * *", nil, onMissed(missed.record))
		a.cron.Start()
		s.until("2026-06-15T12:50:00Z")
		newer.add("job", "0 * * * *", nil)
		newer.cron.Start()
		s.until("2026-06-15T13:10:00Z")
		a.line.cut.Store(true)
		s.until("2026-06-15T15:10:00Z")
		again := s.process("again", setup{})
		again.add("job", "*/20 * * * *", nil)
		again.cron.Start()
		s.until("2026-06-15T15:30:00Z")
		a.line.cut.Store(false)
		s.until("2026-06-15T15:32:00Z")
		require.Equal(s.t, []string{"13:20:00-13:40:00 missed", "14:20:00-14:40:00 missed"}, missed.outcomes())
	})
}

// A run ends. Its record cannot be written down, although the store answers otherwise, and the
// process dies. Others know of it all the same.
func TestRun_isOnRecordIfItsRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		others int
		err    error
		want   string
	}{
		"it failed, the next process":    {0, errJob, "12:01:00 failed"},
		"it failed, another process":     {1, errJob, "12:01:00 failed"},
		"it succeeded, the next process": {0, nil, "12:01:00 ran"},
		"it succeeded, another process":  {1, nil, "12:01:00 ran"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var all []*process
				a := s.process("a", setup{skew: 900 * time.Millisecond})
				a.add("job", "* * * * *", func(context.Context) error {
					a.line.deaf.Store(true)
					return test.err
				})
				a.cron.Start()
				for range test.others {
					p := s.process("b", setup{})
					p.add("job", "* * * * *", nil)
					p.cron.Start()
					all = append(all, p)
				}
				s.until("2026-06-15T12:00:59.5Z")
				a.die()
				s.until("2026-06-15T12:02:30Z")
				for _, p := range all {
					p.end()
				}
				p := s.process("next", setup{})
				p.add("job", "* * * * *", nil)
				p.cron.Start()
				s.until("2026-06-15T12:04:30Z")
				require.Contains(s.t, p.outcomes("job"), test.want)
				ran := 0
				for _, tick := range s.ticks() {
					if tick == "2026-06-15T12:01:00Z" {
						ran++
					}
				}
				require.Equal(s.t, 1, ran)
			})
		})
	}
}

// The store takes longer to answer than a run that begins late takes to be on record. The current
// ticks wait for old ones that are caught up with all the same.
func TestCatchUp_whileTheStoreIsSlowCostsNoCurrentTick(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		for _, quick := range []bool{true, false} { // the other process
			t.Run(fmt.Sprint(delay, quick), func(t *testing.T) {
				t.Parallel()
				for phase := range 5 { // of the 10 s between two ticks
					onSite(t, noon, func(s *site) {
						s.ranOnce("@every 10s", "2026-06-15T12:01:05Z")
						s.until("2026-06-15T12:06:00.5Z")
						s.sleep(time.Duration(phase) * 1850 * time.Millisecond)
						for i, who := range []string{"slow", "other"} {
							p := s.process(who, setup{skew: time.Duration(i) * -20 * time.Millisecond})
							if i == 0 || !quick {
								p.line.delay.Store(int64(delay))
							}
							p.add("job", "@every 10s", hanging(3*time.Second), guardcron.WithCatchUp(5))
							p.cron.Start()
						}
						s.until("2026-06-15T12:08:05Z")
						ran := s.ticks()
						for _, tick := range every(s.t, 10*time.Second, "2026-06-15T12:06:10Z", "2026-06-15T12:07:50Z") {
							if !slices.Contains(ran, tick) {
								s.t.Error(phase, tick)
							}
						}
					})
				}
			})
		}
	}
}

// A process dies in the first second of a run, so that it is not on record, and a deployment
// changes the spec before another process has taken the tick over.
func TestDeath_beforeTheSpecChanges(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		start string
		want  []string
	}{
		"before the lease ends":  {"2026-06-15T12:02:20Z", []string{"12:01:00 ran", "12:02:00 ran"}},
		"after that, see doc.go": {"2026-06-15T12:02:40Z", []string{"12:01:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				old := s.process("old", setup{})
				old.add("job", "1,2 * * * *", func(context.Context) error {
					if len(s.ticks()) == 2 {
						old.die()
						time.Sleep(time.Minute) // virtual time
					}
					return nil
				})
				old.cron.Start()
				s.until(test.start)
				p := s.process("new", setup{})
				p.add("job", "0 3 * * *", nil)
				p.cron.Start()
				s.until("2026-06-15T12:06:00Z")
				require.Equal(s.t, test.want, p.outcomes("job"))
			})
		})
	}
}
