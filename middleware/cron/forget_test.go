package guardcron_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A store that is flushed while a process catches up has no record of any tick. That is no reason
// to go through all ticks since 1970.
func TestMissed_areUnknownIfTheStoreForgetsThemMeanwhile(t *testing.T) {
	onSite(t, "2026-11-21T00:00:00Z", func(s *site) {
		var missed recorder
		first := s.process("first", setup{})
		first.add("job", "0 * * * *", nil)
		first.cron.Start()
		s.until("2026-11-21T02:30:00Z")
		first.end()
		s.until("2026-11-21T06:30:00Z")

		second := s.process("second", setup{jobs: []guardcron.Option{onMissed(missed.record)}})
		second.line.forgets.Store(true)
		second.add("job", "0 * * * *", nil)
		second.cron.Start()
		s.until("2026-11-21T06:45:00Z")
		require.True(t, second.line.forgot.Load(), "it has begun to catch up")
		require.Empty(t, missed.outcomes())
		second.line.forgot.Store(false)
		second.line.forgets.Store(false)
		s.until("2026-11-21T07:30:00Z")
		require.Contains(t, s.ticks(), "2026-11-21T07:00:00Z", "the next tick is run")
	})
}
