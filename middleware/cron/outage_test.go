package guardcron_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The store is away from before the tick of a job that is due once a month until after its
// deadline.
func TestLong_anOutageThatOutlastsTheDeadlineIsNoticedWhenItIsOver(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	for title, test := range map[string]struct {
		opts []guardcron.Option
		over string
		want []string
	}{
		"in time":         {nil, "2026-07-01T00:00:40Z", []string{"00:00:00 ran"}},
		"too late":        {nil, "2026-07-01T00:03:00Z", []string{"00:00:00 missed"}},
		"much too late":   {nil, "2026-07-01T05:00:00Z", []string{"00:00:00 missed"}},
		"with a catch-up": {[]guardcron.Option{guardcron.WithCatchUp(1)}, "2026-07-01T00:03:00Z", []string{"00:00:00 ran"}},
		"a long deadline": {[]guardcron.Option{guardcron.WithStartDeadline(time.Hour)}, "2026-07-01T00:50:00Z", []string{"00:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, "2026-06-30T23:59:30Z", func(s *site) {
				all := s.three(setup{}, "0 0 1 * *", nil, test.opts...)
				s.sleep(time.Second)
				for _, p := range all {
					p.line.cut.Store(true)
				}
				s.until(test.over)
				for _, p := range all {
					p.line.cut.Store(false)
				}
				s.sleep(15 * time.Second)
				require.Equal(s.t, test.want, all[0].outcomes("job"))
			})
		})
	}
}

// An outage of an hour of a job that is due each minute must not push out what is on record.
func TestLong_recordsOfAnOutageAreOne(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed recorder
		all := s.three(setup{}, "* * * * *", nil, guardcron.WithHistory(10), onMissed(missed.record))
		s.until("2026-06-15T12:08:30Z")
		for _, p := range all {
			p.line.cut.Store(true)
		}
		s.until("2026-06-15T13:08:30Z")
		for _, p := range all {
			p.line.cut.Store(false)
		}
		s.until("2026-06-15T13:10:30Z")
		want := []string{"12:05:00 ran", "12:06:00 ran", "12:07:00 ran", "12:08:00 ran", "12:09:00-13:07:00 missed", "13:08:00 ran", "13:09:00 ran", "13:10:00 ran"}
		got := all[0].outcomes("job")
		require.Equal(s.t, want, got[len(got)-len(want):])
		require.Equal(s.t, []string{"12:09:00-13:07:00 missed"}, missed.outcomes())
		require.Equal(s.t, 59, missed.records[0].Ticks)
	})
}

// A record of several ticks covers no tick that has another outcome.
func TestRecords_ofSeveralTicksHaveNoGap(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:02:30Z")
		p.line.cut.Store(true)
		s.until("2026-06-15T12:07:30Z")
		elsewhere, err := guard.New(s.store, guard.WithoutNamespace(), guard.WithOnce(time.Hour))
		require.NoError(s.t, err)
		require.NoError(s.t, elsewhere.Do(context.Background(), "cron:job@2026-06-15T12:05:00Z", func(context.Context) error { return nil }))
		s.until("2026-06-15T12:08:30Z")
		p.line.cut.Store(false)
		s.until("2026-06-15T12:09:30Z")
		want := []string{"12:02:00 ran", "12:03:00-12:04:00 missed", "12:06:00-12:07:00 missed", "12:08:00 ran", "12:09:00 ran"}
		got := p.outcomes("job")
		require.Equal(s.t, want, got[len(got)-len(want):])
	})
}

// What could not be written down is written when the store answers.
func TestRecords_areWrittenAfterAnOutage(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(5*time.Second))
		p.cron.Start()
		s.until("2026-06-15T13:00:03Z")
		p.line.cut.Store(true)
		s.until("2026-06-15T13:00:20Z")
		p.line.cut.Store(false)
		s.sleep(15 * time.Second)
		require.Equal(s.t, []string{"13:00:00 ran"}, p.outcomes("job"))
	})
}

// Runs by hand do not push out what is known of ticks.
func TestRunNow_leavesTheRecordsOfTicks(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		opts := guardcron.WithHistory(1)
		s.ranOnce("0 * * * *", "2026-06-15T13:00:30Z", opts)
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", nil, opts)
		for range 5 {
			s.sleep(time.Second)
			require.NoError(s.t, p.RunNow(context.Background(), "job"))
		}
		s.until("2026-06-15T14:30:00Z")
		p.cron.Start()
		s.sleep(time.Second)
		require.Contains(s.t, p.outcomes("job"), "14:00:00 missed")
		entries, err := driver.Entries(context.Background(), s.store, "cron:job@by-hand", driver.MaxEntries)
		require.NoError(s.t, err)
		require.LessOrEqual(s.t, len(entries), 2)
	})
}

// One process cannot ask the store, or its Cron is stopped, for longer than it remembers ticks. The
// log has forgotten most of them. Others have run them all: it learns that from the mark.
func TestOutage_ofOneProcessMissesNoTickThatOthersHaveRun(t *testing.T) {
	t.Parallel()
	cut := func(p *process, away bool) { p.line.cut.Store(away) }
	for title, test := range map[string]struct {
		away     func(p *process, away bool)
		over     string
		catchUps []int
	}{
		"it is cut off": {cut, "2026-06-15T13:21", []int{0, 100}},
		"its Cron is stopped": {func(p *process, away bool) {
			if away {
				p.cron.Stop()
			} else {
				p.cron.Start()
			}
		}, "2026-06-16T06:01", []int{100}}, // for more ticks than one look counts
	} {
		for _, catchUp := range test.catchUps {
			t.Run(fmt.Sprintf("%s, catch-up %d", title, catchUp), func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					var missed recorder
					all := s.three(setup{}, "* * * * *", nil, guardcron.WithHistory(10), guardcron.WithCatchUp(catchUp), onMissed(missed.record))
					s.until("2026-06-15T12:01:30Z")
					test.away(all[0], true)
					s.until(test.over + ":30Z")
					test.away(all[0], false)
					s.sleep(3 * time.Minute)
					require.Empty(s.t, missed.outcomes())
					over := instant(s.t, test.over+":00Z")
					require.Equal(s.t, every(s.t, time.Minute, "2026-06-15T12:01:00Z", over.Add(3*time.Minute).Format(time.RFC3339)), s.ticks())
					// It reports no other one with a tick that is missed.
					cut(all[0], true)
					all[1].end()
					all[2].end()
					s.sleep(2 * time.Minute)
					cut(all[0], false)
					s.sleep(time.Minute)
					require.Subset(s.t, []string{over.Add(4*time.Minute).Format(time.TimeOnly) + " missed"}, missed.outcomes())
				})
			})
		}
	}
}

// The clock of the process that has run the ticks is ahead, and so is the mark.
func TestOutage_ofOneProcessMissesNoTickIfTheClocksDiffer(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var missed recorder
		ahead, p := s.process("a", setup{skew: 30 * time.Second}), s.process("b", setup{})
		ahead.add("job", "* * * * *", nil, guardcron.WithHistory(10))
		p.add("job", "* * * * *", nil, guardcron.WithHistory(10), onMissed(missed.record))
		ahead.cron.Start()
		p.cron.Start()
		s.until("2026-06-15T12:02:10Z")
		p.line.cut.Store(true)
		s.until("2026-06-15T13:31:40Z")
		p.line.cut.Store(false)
		s.until("2026-06-15T13:35:10Z")
		require.Empty(s.t, missed.outcomes())
	})
}

// A process with an older spec dies in a run, after one with a newer spec has marked later ticks.
func TestOutage_aRunOfAnotherSpecThatDiesIsLost(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		old, p := s.process("old", setup{}), s.process("new", setup{})
		old.add("job", "1 12 * * *", lasting(time.Hour))
		old.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:05:30Z")
		old.die()
		s.until("2026-06-15T12:08:30Z")
		require.Contains(s.t, p.outcomes("job"), "12:01:00 lost")
	})
}
