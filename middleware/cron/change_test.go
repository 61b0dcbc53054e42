package guardcron_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A deployment changes when a job is due.
func TestSchedule_thatChangesHasMissedNothing(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		was, is, back, until string
		want                 []string
	}{
		"earlier on the same day": {"0 3 * * *", "0 12 * * *", "2026-06-16T14:00:00Z", "2026-06-17T13:00:00Z", []string{"03:00:00 ran", "12:00:00 ran"}},
		"after a week":            {"0 3 * * *", "0 * * * *", "2026-06-23T14:30:00Z", "2026-06-23T15:30:00Z", []string{"03:00:00 ran", "15:00:00 ran"}},
		"the same in other words": {"0 3 * * *", "00 03 * * *", "2026-06-17T14:00:00Z", "2026-06-18T04:00:00Z", []string{"03:00:00 ran", "03:00:00 missed", "03:00:00 ran"}},
		"another location":        {"0 3 * * *", "CRON_TZ=Asia/Tokyo 0 3 * * *", "2026-06-16T19:00:00Z", "2026-06-17T04:00:00Z", []string{"03:00:00 ran"}},
	} {
		for catchUp, opts := range map[string][]guardcron.Option{"": nil, ", with catch-up": {guardcron.WithCatchUp(guardcron.Newest)}} {
			t.Run(title+catchUp, func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					s.ranOnce(test.was, "2026-06-16T10:00:00Z", opts...)
					s.until(test.back)
					p := s.process("a", setup{})
					p.add("job", test.is, nil, opts...)
					p.cron.Start()
					s.until(test.until)
					want := slices.Clone(test.want)
					if catchUp != "" {
						for i := range want {
							want[i] = strings.ReplaceAll(want[i], "missed", "ran")
						}
					}
					require.Equal(s.t, want, p.outcomes("job"))
				})
			})
		}
	}
}

// A change counts even if no process was up at the first tick after it.
func TestSchedule_thatHasChangedIsMissedFromThenOn(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		s.ranOnce("0 3 * * *", "2026-06-16T10:00:00Z")
		s.until("2026-06-16T14:00:00Z")
		s.ranOnce("0 12 * * *", "2026-06-16T15:00:00Z")
		s.until("2026-06-17T15:00:00Z")
		p := s.process("a", setup{})
		p.add("job", "0 12 * * *", nil)
		p.cron.Start()
		s.sleep(time.Second)
		require.Equal(s.t, []string{"03:00:00 ran", "12:00:00 missed"}, p.outcomes("job"))
	})
}
