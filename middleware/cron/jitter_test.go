package guardcron_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Twenty jobs are due each minute, in three processes whose clocks differ.
func TestWithJitter_spreadsJobsAndRunsEachTickOnce(t *testing.T) {
	t.Parallel()
	onSite(t, "2026-06-15T12:00:50Z", func(s *site) {
		const jobs, jitter = 20, 40 * time.Second
		for i, who := range []string{"a", "b", "c"} {
			p := s.process(who, setup{skew: time.Duration(i-1) * 900 * time.Millisecond})
			for n := range jobs {
				p.add(fmt.Sprint("job ", n), "* * * * *", func(ctx context.Context) error {
					tick, _ := guardcron.Tick(ctx)
					late := s.now().Sub(tick)
					require.Zero(s.t, tick.Second(), "the tick is that of the schedule")
					require.WithinRange(s.t, s.now(), tick.Add(-time.Second), tick.Add(jitter+time.Second), late)
					return nil
				}, guardcron.WithJitter(jitter), guardcron.WithStartDeadline(5*time.Second))
			}
			p.cron.Start()
		}
		s.until("2026-06-15T12:06:55Z")
		require.Len(s.t, s.ticks(), 6*jobs)
		inQuarter := map[int]int{}
		differ := map[string]bool{}
		for _, at := range s.times() {
			into := instant(s.t, at).Sub(instant(s.t, at).Truncate(time.Minute))
			inQuarter[int(into/(10*time.Second))]++
			differ[at] = true
		}
		for quarter := range 4 {
			require.Greater(s.t, inQuarter[quarter], 6*jobs/4/3, inQuarter)
		}
		require.Greater(s.t, len(differ), 6*jobs*9/10)
	})
}

// A tick is not lost if a process starts after the tick, and before its delayed instant.
func TestWithJitter_survivesAStartInBetween(t *testing.T) {
	t.Parallel()
	onSite(t, "2026-06-15T12:55:00Z", func(s *site) {
		p := s.process("a", setup{})
		id := p.add("job", "0 * * * *", nil, guardcron.WithJitter(50*time.Minute))
		due := p.cron.Entry(id).Schedule.Next(time.Now()).Add(s.base)
		require.Greater(s.t, due.Sub(instant(s.t, "2026-06-15T13:00:00Z")), time.Minute, "the test needs a delay")
		p.end()
		s.until("2026-06-15T13:00:30Z")
		p = s.process("b", setup{})
		p.add("job", "0 * * * *", nil, guardcron.WithJitter(50*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T13:59:00Z")
		require.Equal(s.t, []string{"13:00:00 ran"}, p.outcomes("job"))
		require.WithinDuration(s.t, due, instant(s.t, s.times()[0]), time.Second, "the same instant in both processes")
	})
}

// What is missed is counted from the delayed instant.
func TestWithJitter_andWhatWasMissed(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.ranOnce("* * * * *", "2026-06-15T12:03:55Z", guardcron.WithJitter(50*time.Second))
		s.until("2026-06-15T12:10:00.1Z")
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil, guardcron.WithJitter(50*time.Second), guardcron.WithStartDeadline(time.Second))
		p.cron.Start()
		s.until("2026-06-15T12:11:59Z")
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 ran", "12:03:00 ran", "12:04:00-12:09:00 missed", "12:10:00 ran", "12:11:00 ran"}, p.outcomes("job"))
	})
}
