package guardcron_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// When a process comes up again, the marker of the newest tick has gone. The markers of new ticks
// go while it catches up with the old ones.
func TestCatchUp_doesNotRunAgainATickWhoseMarkerHasGone(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		start := func(who string) *process {
			p := s.process(who, setup{cron: []cron.Option{cron.WithSeconds()}, jobs: []guardcron.Option{
				guardcron.WithTickMemory(1500 * time.Millisecond), guardcron.WithStartDeadline(time.Second), guardcron.WithCatchUp(100),
				guardcron.WithOverlap(guardcron.Allow),
			}})
			// to catch up takes longer than a marker stands
			p.add("job", "* * * * * *", hanging(700*time.Millisecond))
			p.cron.Start()
			return p
		}
		first := start("a")
		s.sleep(2500 * time.Millisecond)
		first.end()
		s.sleep(2500 * time.Millisecond) // longer than the marker stands
		start("b")
		s.sleep(20 * time.Second)
		require.Equal(s.t, every(s.t, time.Second, "2026-06-15T12:00:31Z", "2026-06-15T12:00:55Z"), s.ticks())
	})
}

// The process that catches up dies in the middle of it.
func TestCatchUp_anotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.ranOnce("0 * * * *", "2026-06-15T13:00:30Z")
		s.until("2026-06-15T17:30:00Z")
		start := func(who string) *process {
			p := s.process(who, setup{})
			p.add("job", "0 * * * *", hanging(time.Minute), guardcron.WithCatchUp(3))
			p.cron.Start()
			return p
		}
		a := start("a")
		s.sleep(90 * time.Second) // in its second run
		a.die()
		b := start("b")
		s.until("2026-06-15T17:50:00Z")
		require.Equal(s.t, []string{"13:00:00 ran", "14:00:00 missed", "15:00:00 ran", "16:00:00 lost", "16:00:00 ran", "17:00:00 ran"}, b.outcomes("job"))
		require.Equal(s.t, []string{"2026-06-15T15:00:00Z", "2026-06-15T16:00:00Z", "2026-06-15T16:00:00Z", "2026-06-15T17:00:00Z"}, s.ticks())
	})
}

// The store does not answer for five seconds when a process asks for an old tick.
func TestCatchUp_asksAgainForATick(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.ranOnce("0 * * * *", "2026-06-15T13:00:30Z")
		s.until("2026-06-15T15:30:00Z")
		p := s.process("a", setup{})
		over := time.Now().Add(5 * time.Second)
		spoilt := func(c linetest.Call) bool {
			return c.Op == driver.OpAcquire && c.Key == "cron:job@2026-06-15T14:00:00Z" && time.Now().Before(over)
		}
		p.line.spoilt.Store(&spoilt)
		p.add("job", "0 * * * *", nil, guardcron.WithCatchUp(2))
		p.cron.Start()
		s.until("2026-06-15T15:35:00Z")
		require.Equal(s.t, []string{"13:00:00 ran", "14:00:00 ran", "15:00:00 ran"}, p.outcomes("job"))
		require.False(s.t, p.records("job")[1].Start.Before(instant(s.t, "2026-06-15T15:30:05Z")))
	})
}
