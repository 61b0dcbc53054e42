package guardcron_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Replicas in two time zones run a job at the ticks of each zone. The second one says so once, and
// the list of jobs shows it.
func TestZones_aProcessWarnsOfOtherTicks(t *testing.T) {
	t.Parallel()
	type replica struct{ zone, spec string }
	for title, c := range map[string]struct {
		replicas []replica
		opts     []guardcron.Option
		warned   int
		zones    []string // of List
	}{
		"one zone":                {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"Europe/Berlin", "0 3 * * *"}}, nil, 0, nil},
		"two zones":               {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"UTC", "0 3 * * *"}}, nil, 1, []string{"UTC", "Europe/Berlin"}},
		"three replicas":          {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"UTC", "0 3 * * *"}, {"UTC", "0 3 * * *"}}, nil, 2, []string{"UTC", "Europe/Berlin"}},
		"summer time in one":      {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"Africa/Lagos", "0 3 * * *"}}, nil, 1, []string{"Africa/Lagos", "Europe/Berlin"}},
		"other weeks of summer":   {[]replica{{"America/Santiago", "0 3 * * *"}, {"America/Asuncion", "0 3 * * *"}}, nil, 1, []string{"America/Asuncion", "America/Santiago"}},
		"two names of one zone":   {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"Europe/Vienna", "0 3 * * *"}}, nil, 0, nil},
		"names, by local ticks":   {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"Europe/Vienna", "0 3 * * *"}}, []guardcron.Option{guardcron.WithLocalTicks()}, 1, []string{"Europe/Vienna", "Europe/Berlin"}},
		"every minute":            {[]replica{{"Europe/Berlin", "* * * * *"}, {"UTC", "* * * * *"}}, nil, 0, nil},
		"an interval":             {[]replica{{"Europe/Berlin", "@every 1h"}, {"UTC", "@every 1h"}}, nil, 0, nil},
		"half an hour apart":      {[]replica{{"Asia/Kolkata", "0 * * * *"}, {"UTC", "0 * * * *"}}, nil, 1, []string{"UTC", "Asia/Kolkata"}},
		"the spec says which":     {[]replica{{"Europe/Berlin", "CRON_TZ=Asia/Tokyo 0 3 * * *"}, {"UTC", "CRON_TZ=Asia/Tokyo 0 3 * * *"}}, nil, 0, nil},
		"another spec":            {[]replica{{"Europe/Berlin", "0 3 * * *"}, {"UTC", "0 4 * * *"}}, nil, 0, nil},
		"a zone in the spec only": {[]replica{{"UTC", "CRON_TZ=Asia/Tokyo 0 3 * * *"}, {"UTC", "0 3 * * *"}}, nil, 1, []string{"UTC", "Asia/Tokyo"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var warned []error
				hook := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
					if o.Refused != nil {
						require.Equal(s.t, "misconfigured", o.Result)
						warned = append(warned, o.Refused)
					}
				}}
				var last *process
				for i, r := range c.replicas {
					p := s.process(fmt.Sprint(i), setup{cron: []cron.Option{cron.WithLocation(zone(s.t, r.zone))}, guard: []guard.Option{guard.WithHook(hook)}, jobs: c.opts})
					p.add("job", r.spec, nil)
					p.add("same", r.spec, nil)
					p.cron.Start()
					s.sleep(time.Second)
					last = p
				}
				require.Len(s.t, warned, c.warned, "%v", warned)
				for _, err := range warned {
					require.ErrorContains(s.t, err, "time zone "+c.zones[0])
					require.ErrorContains(s.t, err, "in "+c.zones[1])
				}
				all, err := last.List(context.Background())
				require.NoError(s.t, err)
				require.Len(s.t, all, 2)
				require.ElementsMatch(s.t, c.zones, all[0].Zones)
				require.Equal(s.t, title == "an interval", all[0].Zone == "")
			})
		})
	}
}

// A zone that no process has any more is forgotten, and one that a process has is not, however
// long ago it was started.
func TestZones_areThoseOfProcessesThatLive(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		ends   bool // the first process
		warned int
	}{"ended": {true, 0}, "lives": {false, 1}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				warned := 0
				hook := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
					if o.Refused != nil {
						warned++
					}
				}}
				start := func(who, in string) *process {
					p := s.process(who, setup{cron: []cron.Option{cron.WithLocation(zone(s.t, in))}, guard: []guard.Option{guard.WithHook(hook)}})
					p.add("job", "0 3 * * *", nil)
					p.cron.Start()
					s.sleep(time.Second)
					return p
				}
				first := start("a", "Europe/Berlin")
				s.sleep(24 * time.Hour)
				if c.ends {
					first.end()
				}
				s.sleep(10 * 24 * time.Hour)
				second := start("b", "UTC")
				require.Equal(s.t, c.warned, warned)
				all, err := second.List(context.Background())
				require.NoError(s.t, err)
				require.Len(s.t, all[0].Zones, 2*c.warned)
			})
		})
	}
}
