package guardcron_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A job that finds nothing to do says so, and its record does not say that it ran.
func TestDone_aRunThatDidNothingIsSkipped(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		err  error
		opts []guardcron.Option
		want guardcron.Result
		runs int // of three processes
	}{
		"done":                  {guard.ErrDone, nil, guardcron.Skipped, 1},
		"done, with its reason": {fmt.Errorf("today's report exists: %w", guard.ErrDone), nil, guardcron.Skipped, 1},
		"the error of Do":       {&guard.DoneError{Key: "report"}, nil, guardcron.Skipped, 1},
		"done, WithRerun":       {guard.ErrDone, []guardcron.Option{guardcron.WithRerun()}, guardcron.Skipped, 1},
		"done, Allow":           {guard.ErrDone, []guardcron.Option{guardcron.WithOverlap(guardcron.Allow)}, guardcron.Skipped, 1},
		"busy is a failure":     {&guard.BusyError{Key: "other"}, nil, guardcron.Failed, 1},
		"a failure":             {errors.New("disk full"), nil, guardcron.Failed, 1},
		"a failure, WithRerun":  {errors.New("disk full"), []guardcron.Option{guardcron.WithRerun()}, guardcron.Failed, 3},
		"nil":                   {nil, nil, guardcron.Ran, 1},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var all []*process
				for i := range 3 {
					p := s.process(fmt.Sprint(i), setup{jobs: c.opts})
					p.add("report", "1 12 * * *", func(context.Context) error { return c.err })
					p.cron.Start()
					all = append(all, p)
				}
				s.until("2026-06-15T12:03:00Z")
				require.Len(s.t, s.ticks(), c.runs)
				r := all[0].records("report")[0]
				require.Equal(s.t, c.want, r.Result)
				if c.err != nil {
					require.Equal(s.t, c.err.Error(), r.Reason)
				}
				err := all[0].RunNow(context.Background(), "report")
				require.ErrorIs(s.t, err, c.err)
				require.Equal(s.t, c.want, all[0].records("report")[0].Result, "by hand, too")
			})
		})
	}
}

// Nightly, and at most once a day also by hand: the recipes of docs/cron.md over five days. On
// some days an operator runs the job by hand before its tick or after it, in another process.
func TestDone_nightlyAndAtMostOnceADayByHand(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		key    func(now time.Time) string
		window guard.Option
		again  func(last, now time.Time) bool // whether the work is due at a start
	}{
		"once per period": {
			func(time.Time) string { return "report" }, guard.WithOncePer(24 * time.Hour),
			func(last, now time.Time) bool { return now.Sub(last) >= 24*time.Hour*9/10 },
		},
		"once on a date": {
			func(now time.Time) string { return "report:" + now.Format(time.DateOnly) }, guard.WithOnce(25 * time.Hour),
			func(last, now time.Time) bool { return last.Format(time.DateOnly) != now.Format(time.DateOnly) },
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, "2026-06-01T00:00:00Z", func(s *site) {
				var all []*process
				var last time.Time // start of the work
				want := map[string]guardcron.Result{}
				for i := range 2 {
					p := s.process(fmt.Sprint(i), setup{})
					p.add("report", "0 3 * * *", func(ctx context.Context) error {
						now := s.now()
						due, begun := c.again(last, now), false
						err := p.guard.Do(ctx, c.key(now), func(context.Context) error {
							last, begun = now, true
							time.Sleep(20 * time.Minute) // virtual time
							return nil
						}, c.window)
						require.Equal(s.t, due, begun, now)
						if _, ok := guardcron.Tick(ctx); ok {
							want[now.Format(time.DateOnly)] = map[bool]guardcron.Result{true: guardcron.Ran, false: guardcron.Skipped}[begun]
						}
						return err
					})
					p.cron.Start()
					all = append(all, p)
				}
				for day := 1; day <= 5; day++ {
					date := fmt.Sprintf("2026-06-%02d", day)
					if byHand := []string{"01:00:00", "17:00:00", ""}[day%3]; byHand != "" {
						s.until(date + "T" + byHand + "Z")
						if err := all[day%2].RunNow(context.Background(), "report"); err != nil {
							require.ErrorIs(s.t, err, guard.ErrDone)
						}
					}
					s.until(date + "T23:59:00Z")
				}
				require.Len(s.t, want, 5)
				counts := map[guardcron.Result]int{}
				for date, outcome := range want {
					require.Equal(s.t, outcome, s.record("report", date, all[0]).Result, date)
					counts[outcome]++
				}
				require.Greater(s.t, counts[guardcron.Ran], 1)
				require.Positive(s.t, counts[guardcron.Skipped])
			})
		})
	}
}

// record returns the record of the tick of that day.
func (s *site) record(job, date string, p *process) guardcron.Record {
	s.t.Helper()
	for _, r := range p.records(job) {
		if r.Tick.Format(time.DateOnly) == date {
			return r
		}
	}
	require.Fail(s.t, "no record of "+date)
	return guardcron.Record{}
}
