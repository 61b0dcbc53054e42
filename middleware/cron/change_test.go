package guardcron_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
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
		for catchUp, opts := range map[string][]guardcron.Option{"": nil, ", with catch-up": {guardcron.WithCatchUp(1)}} {
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

// A stay is a time in which a process is up.
type stay struct{ spec, from, to string }

// Processes with two specs come and go, one of them for long. Those that are back know which ticks
// were theirs.
func TestSchedule_thatIsBack(t *testing.T) {
	t.Parallel()
	const hourly, daily = "0 * * * *", "0 3 * * *"
	for title, test := range map[string]struct {
		stays []stay
		back  string // the spec of a process that starts after that
		at    string
		want  []string // what it reports in a minute
	}{
		"the first tick of the new spec": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T13:01:00Z"}, {daily, "2026-06-15T12:55:00Z", "2026-06-15T20:00:00Z"}},
			daily, "2026-06-16T06:00:00Z", []string{"2026-06-16T03:00:00Z"},
		},
		"while the old one is back for an hour": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T13:01:00Z"}, {daily, "2026-06-15T12:55:00Z", "2026-06-15T20:00:00Z"},
				{hourly, "2026-06-15T22:10:00Z", "2026-06-15T23:10:00Z"}},
			daily, "2026-06-16T06:00:00Z", []string{"2026-06-16T03:00:00Z"},
		},
		"a tick of both that the old one has run": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T13:01:00Z"}, {daily, "2026-06-15T12:55:00Z", "2026-06-15T20:00:00Z"},
				{hourly, "2026-06-15T22:10:00Z", "2026-06-16T09:10:00Z"}},
			daily, "2026-06-16T12:00:00Z", nil,
		},
		"rolled back after two days": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T13:01:00Z"}, {daily, "2026-06-15T13:01:00Z", "2026-06-17T13:00:00Z"}},
			hourly, "2026-06-17T13:01:00Z", nil,
		},
		"rolled back after two days, and down": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T13:01:00Z"}, {daily, "2026-06-15T13:01:00Z", "2026-06-17T13:00:00Z"},
				{hourly, "2026-06-17T13:01:00Z", "2026-06-17T13:30:00Z"}},
			hourly, "2026-06-17T15:30:00Z", []string{"2026-06-17T14:00:00Z", "2026-06-17T15:00:00Z"},
		},
		"rolled out again after three days": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T13:01:00Z"}, {daily, "2026-06-15T13:01:00Z", "2026-06-17T13:00:00Z"},
				{hourly, "2026-06-17T13:01:00Z", "2026-06-20T13:01:00Z"}},
			daily, "2026-06-20T13:02:00Z", nil,
		},
		"after a new one that was there for a minute": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T15:30:00Z"}, {daily, "2026-06-15T12:55:00Z", "2026-06-15T12:56:00Z"}},
			hourly, "2026-06-15T17:30:00Z", []string{"2026-06-15T16:00:00Z", "2026-06-15T17:00:00Z"},
		},
		"restarted in time during the rollout": {
			[]stay{{hourly, "2026-06-15T12:30:00Z", "2026-06-15T12:59:50Z"}, {daily, "2026-06-15T12:55:00Z", "2026-06-15T20:00:00Z"}},
			hourly, "2026-06-15T20:00:30Z", nil,
		},
	} {
		for _, policy := range []int{0, 100} {
			t.Run(fmt.Sprintf("%s, %d", title, policy), func(t *testing.T) {
				t.Parallel()
				onSite(t, "2026-06-15T12:20:00Z", func(s *site) {
					start := func(spec string, opts ...guardcron.Option) *process {
						p := s.process(spec, setup{guard: []guard.Option{guard.WithNamespace("test")}})
						p.add("job", spec, nil, append(opts, guardcron.WithHistory(1), guardcron.WithCatchUp(policy))...)
						p.cron.Start()
						return p
					}
					ends := map[string]func(){}
					var at []string
					for _, one := range test.stays {
						at = append(at, one.from, one.to)
					}
					slices.Sort(at)
					for _, at := range at {
						s.until(at)
						for _, one := range test.stays {
							if one.to == at {
								ends[one.spec]()
							}
							if one.from == at {
								ends[one.spec] = start(one.spec).end
							}
						}
					}
					s.until(test.at)
					s.forget()
					var missed recorder
					start(test.back, onMissed(missed.record))
					s.sleep(70 * time.Second)
					got := s.ticks()
					for _, r := range missed.records {
						for tick := range ticksBetween(s.t, test.back, r) {
							got = append(got, tick.Format(time.RFC3339))
						}
					}
					slices.Sort(got)
					require.ElementsMatch(s.t, test.want, got)
					require.Equal(s.t, policy == 0 && test.want != nil, len(missed.records) > 0)
				})
			})
		}
	}
}

// The clock of the process that began the old spec is half a minute ahead, and the new one is
// deployed within this time.
func TestSchedule_thatChangesBeforeTheOldOneBeganByTheClock(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		start := func(spec string, skew time.Duration) *process {
			p := s.process(spec, setup{skew: skew})
			p.add("job", spec, nil)
			p.cron.Start()
			return p
		}
		old := start("* * * * *", 30*time.Second)
		s.sleep(10 * time.Second)
		replacing := start("*/2 * * * *", 0)
		s.until("2026-06-15T12:05:10Z")
		replacing.end()
		s.until("2026-06-15T12:06:50Z")
		old.end()
		s.until("2026-06-15T12:15:00Z")
		back := start("*/2 * * * *", 0)
		s.sleep(time.Second)
		require.Contains(s.t, back.outcomes("job"), "12:08:00-12:12:00 missed")
	})
}
