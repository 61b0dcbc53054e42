package guardcron_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A night is one on which clocks are changed.
type night struct {
	zone, begin, end string // three processes are up from begin to end
	jobs             []changed
}

// A changed lists the ticks that a job runs in that night, and those with WithLocalTicks if they
// differ.
type changed struct {
	name, spec string
	ticks      []string
	local      []string
}

// every returns all multiples of d from the first instant to the last.
func every(t *testing.T, d time.Duration, first, last string) []string {
	t.Helper()
	var texts []string
	for at := instant(t, first); !at.After(instant(t, last)); at = at.Add(d) {
		texts = append(texts, at.Format(time.RFC3339))
	}
	return texts
}

func nights(t *testing.T) map[string]night {
	t.Helper()
	join := func(parts ...[]string) []string {
		var all []string
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	const hour, minute = time.Hour, time.Minute
	return map[string]night{
		// 02:00 EST becomes 03:00 EDT at 07:00 UTC.
		"New York, forward": {"America/New_York", "2026-03-08T05:30:00Z", "2026-03-09T07:00:00Z", []changed{
			{"in the hour that is skipped", "30 2 * * *", []string{"2026-03-09T06:30:00Z"}, nil},
			{"at its first instant", "0 2 * * *", []string{"2026-03-09T06:00:00Z"}, nil},
			{"before it", "30 1 * * *", []string{"2026-03-08T06:30:00Z", "2026-03-09T05:30:00Z"}, nil},
			{"right after it", "0 3 * * *", []string{"2026-03-08T07:00:00Z", "2026-03-09T07:00:00Z"}, nil},
			{"each hour", "0 * * * *", every(t, hour, "2026-03-08T06:00:00Z", "2026-03-09T07:00:00Z"), nil},
		}},
		"New York, forward, each minute": {"America/New_York", "2026-03-08T05:59:30Z", "2026-03-08T08:00:00Z", []changed{
			{"each minute", "* * * * *", every(t, minute, "2026-03-08T06:00:00Z", "2026-03-08T08:00:00Z"), nil},
		}},
		// 02:00 EDT becomes 01:00 EST at 06:00 UTC.
		"New York, back": {"America/New_York", "2026-11-01T04:30:00Z", "2026-11-02T06:30:00Z", []changed{
			{"in the hour that comes twice", "30 1 * * *", []string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"},
				[]string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
			{"at its first instant", "0 1 * * *", []string{"2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-02T06:00:00Z"},
				[]string{"2026-11-01T05:00:00Z", "2026-11-02T06:00:00Z"}},
			{"right after it", "0 2 * * *", []string{"2026-11-01T07:00:00Z"}, nil},
			{"each hour", "0 * * * *", every(t, hour, "2026-11-01T05:00:00Z", "2026-11-02T06:00:00Z"),
				join([]string{"2026-11-01T05:00:00Z"}, every(t, hour, "2026-11-01T07:00:00Z", "2026-11-02T06:00:00Z"))},
			{"at fixed delays", "@every 2h", every(t, 2*hour, "2026-11-01T06:00:00Z", "2026-11-02T06:00:00Z"), nil},
		}},
		"New York, back, each minute": {"America/New_York", "2026-11-01T04:59:30Z", "2026-11-01T08:00:00Z", []changed{
			{"each minute", "* * * * *", every(t, minute, "2026-11-01T05:00:00Z", "2026-11-01T08:00:00Z"),
				join(every(t, minute, "2026-11-01T05:00:00Z", "2026-11-01T05:59:00Z"), every(t, minute, "2026-11-01T07:00:00Z", "2026-11-01T08:00:00Z"))},
		}},
		// Half an hour: 02:00 becomes 02:30 at 15:30 UTC of the day before, and 02:00 becomes
		// 01:30 at 15:00 UTC.
		"Lord Howe, forward": {"Australia/Lord_Howe", "2026-10-03T14:45:00Z", "2026-10-04T16:00:00Z", []changed{
			{"in the half hour that is skipped", "15 2 * * *", []string{"2026-10-04T15:15:00Z"}, nil},
			{"in the other half", "45 2 * * *", []string{"2026-10-03T15:45:00Z", "2026-10-04T15:45:00Z"}, nil},
		}},
		"Lord Howe, back": {"Australia/Lord_Howe", "2026-04-04T14:15:00Z", "2026-04-05T15:30:00Z", []changed{
			{"in the half hour that comes twice", "45 1 * * *", []string{"2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-05T15:15:00Z"},
				[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
			{"in the half hour before", "20 1 * * *", []string{"2026-04-04T14:20:00Z", "2026-04-05T14:50:00Z"}, nil},
		}},
		// Midnight itself: 00:00 of the 6th of September becomes 01:00, and 24:00 of the 4th of
		// April becomes 23:00.
		"Santiago, forward": {"America/Santiago", "2026-09-06T03:30:00Z", "2026-09-07T03:30:00Z", []changed{
			{"at a midnight that is skipped", "0 0 * * *", []string{"2026-09-07T03:00:00Z"}, nil},
			{"right after it", "0 1 * * *", []string{"2026-09-06T04:00:00Z"}, nil},
		}},
		"Santiago, back": {"America/Santiago", "2026-04-05T01:30:00Z", "2026-04-06T04:00:00Z", []changed{
			{"in the hour that comes twice", "30 23 * * *", []string{"2026-04-05T02:30:00Z", "2026-04-05T03:30:00Z", "2026-04-06T03:30:00Z"},
				[]string{"2026-04-05T02:30:00Z", "2026-04-06T03:30:00Z"}},
			{"at midnight", "0 0 * * *", []string{"2026-04-05T04:00:00Z", "2026-04-06T04:00:00Z"}, nil},
		}},
	}
}

// TestClockChange_eachTickOnce has three processes, whose clocks differ, live through the nights
// on which clocks are changed.
//
// The zone is in the spec of the jobs with local ticks, and in the Cron of the others. The other
// two of the four are in TestWeekly_eachTickOnceWhereverTheZoneIs.
func TestClockChange_eachTickOnce(t *testing.T) {
	t.Parallel()
	onEachNight(t, true, 3)
}

func TestWeekly_eachTickOnceWhereverTheZoneIs(t *testing.T) {
	redistest.Long(t)
	onEachNight(t, true, 1)
	onEachNight(t, false, 1)
}

// onEachNight runs the jobs of each night, or only every so many of them, with and without local
// ticks. The zone is in the spec of the jobs whose ticks are local, or of the others.
func onEachNight(t *testing.T, inSpecOfLocal bool, every int) {
	t.Helper()
	for title, n := range nights(t) {
		for i, job := range n.jobs {
			if i%every != 0 {
				continue
			}
			for _, local := range []bool{false, true} {
				inSpec := local == inSpecOfLocal
				name := title + ", " + job.name
				want := job.ticks
				opts := []guardcron.Option{}
				if local {
					name += ", local ticks"
					opts = append(opts, guardcron.WithLocalTicks())
					if job.local != nil {
						want = job.local
					}
				}
				of, spec := setup{cron: []cron.Option{cron.WithLocation(zone(t, n.zone))}}, job.spec
				if inSpec {
					if spec[0] == '@' {
						continue // which has no zone
					}
					name += ", CRON_TZ"
					of, spec = setup{}, "CRON_TZ="+n.zone+" "+spec
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					onSite(t, n.begin, func(s *site) {
						all := s.three(of, spec, nil, opts...)
						s.until(n.end)
						s.sleep(2 * time.Second) // the last process is late
						require.Equal(s.t, want, s.ticks())
						for _, r := range all[0].records("job") {
							require.Equal(s.t, guardcron.Ran, r.Result, "nothing was missed, or left out: %v", r)
						}
					})
				})
			}
		}
	}
}

// A marker of the first 01:00 must outlive the second, however often the job runs, and however
// late a process is.
func TestClockChange_localTicksAreRememberedForLongEnough(t *testing.T) {
	t.Parallel()
	onSite(t, "2026-11-01T04:59:30Z", func(s *site) {
		of := setup{cron: []cron.Option{cron.WithLocation(zone(s.t, "America/New_York"))}}
		first := s.process("first", of)
		first.add("job", "* * * * *", nil, guardcron.WithLocalTicks())
		first.cron.Start()
		s.until("2026-11-01T05:59:30Z")
		first.end()
		s.forget()
		of.skew = -30 * time.Second
		late := s.process("late", of)
		late.add("job", "* * * * *", nil, guardcron.WithLocalTicks())
		s.until("2026-11-01T06:00:10Z")
		late.cron.Start()
		s.until("2026-11-01T06:59:50Z")
		require.Empty(s.t, s.ticks())
		s.until("2026-11-01T07:00:50Z")
		require.Equal(s.t, []string{"2026-11-01T07:00:00Z"}, s.ticks())
	})
}

// The second 06:30 of the night was not run. When the marker of the first has gone, a process that
// starts neither reports it nor catches up with it.
func TestClockChange_localTicksLeaveNoHoleForAStart(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		end, back string
		opts      []guardcron.Option
		want      []string // after 05:30
	}{
		"restart":  {"2026-11-01T12:40:00Z", "2026-11-01T12:41:00Z", nil, []string{"07:30:00 ran", "08:30:00 ran", "09:30:00 ran", "10:30:00 ran", "11:30:00 ran", "12:30:00 ran"}},
		"catch-up": {"2026-11-01T06:40:00Z", "2026-11-01T08:40:00Z", []guardcron.Option{guardcron.WithCatchUp(3)}, []string{"07:30:00 ran", "08:30:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, "2026-11-01T04:20:00Z", func(s *site) {
				var o recorder
				start := func(who string) *process {
					p := s.process(who, setup{cron: []cron.Option{cron.WithLocation(zone(s.t, "America/New_York"))}})
					p.add("job", "30 * * * *", nil, append(test.opts, guardcron.WithLocalTicks(), guardcron.WithObserver(o.record))...)
					p.cron.Start()
					return p
				}
				p := start("a")
				s.until(test.end)
				p.end()
				s.until(test.back)
				p = start("b")
				s.sleep(5 * time.Minute)
				want := append([]string{"04:30:00 ran", "05:30:00 ran"}, test.want...)
				require.Equal(s.t, want, p.outcomes("job"))
				require.Equal(s.t, want, o.outcomes())
			})
		})
	}
}

// Two ticks have the same name in two zones.
func TestClockChange_localTicksOfAnotherZoneAreOthers(t *testing.T) {
	t.Parallel()
	onSite(t, "2026-06-15T00:30:00Z", func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "CRON_TZ=Europe/Berlin 0 3 * * *", nil, guardcron.WithLocalTicks())
		p.cron.Start()
		s.until("2026-06-15T05:00:00Z")
		p.end()
		p = s.process("b", setup{})
		p.add("job", "CRON_TZ=America/New_York 0 3 * * *", nil, guardcron.WithLocalTicks())
		p.cron.Start()
		s.until("2026-06-15T09:00:00Z")
		require.Equal(s.t, []string{"2026-06-15T01:00:00Z", "2026-06-15T07:00:00Z"}, s.ticks())
	})
}

// A zone may have a name that is not fit for a key.
func TestClockChange_localTicksOfAZoneWithAnyName(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{cron: []cron.Option{cron.WithLocation(time.FixedZone("{my} @zone\x00", 3600))}})
		p.add("job", "* * * * *", hanging(90*time.Second), guardcron.WithLocalTicks())
		p.cron.Start()
		s.until("2026-06-15T12:02:50Z")
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 skipped"}, p.outcomes("job"))
	})
}
