package guardcron_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Runs of two and a half minutes of a job that is due each minute, in three processes: ticks wait
// for those before.
func TestWithLease_withFairRunsTicksInOrder(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		for _, who := range []string{"a", "b", "c"} {
			p := s.process(who, setup{})
			p.add("job", "* * * * *", func(context.Context) error {
				time.Sleep(150 * time.Second) // virtual time
				return nil
			}, guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(20*time.Minute), guardcron.WithLease(guard.WithFair()))
			p.cron.Start()
		}
		s.until("2026-06-15T12:16:30Z")
		ticks := s.ticks()
		require.Len(s.t, ticks, 7)
		require.IsIncreasing(s.t, ticks)
		s.sleep(time.Hour)
	})
}
