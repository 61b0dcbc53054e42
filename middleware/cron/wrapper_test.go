package guardcron_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// skews are clocks that a process may have.
var skews = []time.Duration{-900 * time.Millisecond, 0, 900 * time.Millisecond}

// wrapped starts three processes with a wrapped entry. In a Cron that has a clock of its own, a
// clock that is ahead fires early.
func (s *site) wrapped(spec string, f func(), opts ...guardcron.Option) *process {
	s.t.Helper()
	var p *process
	for i, skew := range skews {
		p = s.process(string(rune('a'+i)), setup{skew: skew})
		parsed, err := cron.ParseStandard(spec)
		require.NoError(s.t, err)
		wrapper, err := p.Wrapper("job", parsed, opts...)
		require.NoError(s.t, err)
		who := p.who
		p.cron.Schedule(ahead{parsed, s.base + skew}, cron.NewChain(wrapper).Then(cron.FuncJob(func() {
			s.ran(context.Background(), who)
			if f != nil {
				f()
			}
		})))
		p.cron.Start()
	}
	return p
}

// ahead is a schedule by another clock.
type ahead struct {
	cron.Schedule
	by time.Duration
}

func (a ahead) Next(t time.Time) time.Time { return a.Schedule.Next(t.Add(a.by)).Add(-a.by) }

func TestWrapper_oncePerTick(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		spec    string
		end     string
		records []string
	}{
		"each minute":            {"* * * * *", "2026-06-15T12:03:30Z", []string{"12:01:00 ran", "12:02:00 ran", "12:03:00 ran"}},
		"each hour, not at full": {"10 * * * *", "2026-06-15T14:30:00Z", []string{"12:10:00 ran", "13:10:00 ran", "14:10:00 ran"}},
		"each hour, late in it":  {"40 * * * *", "2026-06-15T14:30:00Z", []string{"12:40:00 ran", "13:40:00 ran"}},
		// half a period after the multiples of it, where clocks that differ saw two ticks in one
		"half past":                  {"30 * * * *", "2026-06-15T14:45:00Z", []string{"12:30:00 ran", "13:30:00 ran", "14:30:00 ran"}},
		"each day at noon":           {"0 12 * * *", "2026-06-17T13:00:00Z", []string{"12:00:00 ran", "12:00:00 ran"}},
		"twice in less than an hour": {"0,20 * * * *", "2026-06-15T13:30:00Z", []string{"12:20:00 ran", "13:00:00 ran", "13:20:00 ran"}},
		"each day at night":          {"0 22 * * *", "2026-06-16T23:00:00Z", []string{"22:00:00 ran", "22:00:00 ran"}},
		"seldom":                     {"0 3 * * 2", "2026-06-23T04:00:00Z", []string{"03:00:00 ran", "03:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var missed told
				p := s.wrapped(test.spec, nil, onMissed(missed.tell))
				s.until(test.end)
				require.Equal(s.t, test.records, p.outcomes("job"))
				require.Len(s.t, s.times(), len(test.records))
				require.Empty(s.t, missed.outcomes(), "nothing is found missed")
			})
		})
	}
}

func TestWrapper_overlap(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		overlap guardcron.Busy
		runs    int
	}{"Skip": {guardcron.Skip, 2}, "Wait": {guardcron.Wait, 3}, "Allow": {guardcron.Allow, 4}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				// virtual time
				s.wrapped("* * * * *", func() { time.Sleep(90 * time.Second) }, guardcron.WithBusy(test.overlap), guardcron.WithStartDeadline(40*time.Second))
				s.until("2026-06-15T12:04:30Z")
				require.Len(s.t, s.times(), test.runs)
			})
		})
	}
}

// A panic of the job passes, and it can be paused, and run by hand.
func TestWrapper_isAJobAsOthersAre(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		p := s.wrapped("* * * * *", nil)
		require.NoError(s.t, p.Pause(ctx, "job"))
		s.until("2026-06-15T12:01:30Z")
		require.NoError(s.t, p.Resume(ctx, "job"))
		require.NoError(s.t, p.RunNow(ctx, "job"))
		require.Equal(s.t, []string{"12:01:00 skipped", "by hand ran"}, p.outcomes("job"))
		p.end()
		s.until("2026-06-15T12:02:30Z")
		require.Len(s.t, s.times(), 2, "the other processes go on")
	})
}

func TestWrapper_refusals(t *testing.T) {
	t.Parallel()
	jobs, _ := here(t)
	never, err := cron.ParseStandard("0 0 30 2 *")
	require.NoError(t, err)
	for _, schedule := range []cron.Schedule{nil, never} {
		wrapper, err := jobs.Wrapper("job", schedule)
		require.Equal(t, []string{"schedule"}, settings(err))
		require.ErrorContains(t, err, `guardcron: job "job"`)
		require.Nil(t, wrapper)
	}
	_, err = jobs.Wrapper("1s", cron.Every(time.Second))
	require.NoError(t, err)
	_, err = jobs.Wrapper("1s", cron.Every(time.Minute))
	require.Equal(t, []string{"name"}, settings(err), "it has that name already")
	_, err = jobs.AddFunc("1s", "@daily", none)
	require.Equal(t, []string{"name"}, settings(err), "for others as well")
	_, err = jobs.Wrapper("x@y", cron.Every(time.Minute), guardcron.WithHistory(0))
	require.ElementsMatch(t, []string{"name", "WithHistory"}, settings(err))
}

func TestWrapper_isForOneJob(t *testing.T) {
	t.Parallel()
	jobs, _ := here(t)
	wrapper, err := jobs.Wrapper("job", cron.Every(time.Minute))
	require.NoError(t, err)
	require.ErrorContains(t, jobs.RunNow(t.Context(), "job"), "it wraps no job")
	calls := 0
	wrapper(cron.FuncJob(func() { calls++ }))
	require.PanicsWithValue(t, `guardcron: the wrapper of job "job" has wrapped another one: each entry needs one of its own`, func() {
		wrapper(cron.FuncJob(func() {}))
	})
	require.NoError(t, jobs.RunNow(t.Context(), "job"))
	require.Equal(t, 1, calls)
}

func TestWrapper_afterClose(t *testing.T) {
	t.Parallel()
	jobs, _ := here(t)
	wrapper, err := jobs.Wrapper("job", cron.Every(time.Minute))
	require.NoError(t, err)
	calls := 0
	job := wrapper(cron.FuncJob(func() { calls++ }))
	require.NoError(t, jobs.Close(t.Context()))
	job.Run()
	require.Zero(t, calls)
	require.ErrorIs(t, jobs.RunNow(t.Context(), "job"), guard.ErrClosed)
}

// The process that runs a tick dies: another one runs it.
func TestWrapper_anotherProcessRunsTheTickInTime(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		// virtual time
		p := s.wrapped("0 * * * *", func() { time.Sleep(5 * time.Second) })
		s.until("2026-06-15T13:00:01Z")
		require.Len(s.t, s.times(), 1)
		p.die() // it is ahead
		s.until("2026-06-15T13:05:00Z")
		require.Len(s.t, s.times(), 2)
		s.until("2026-06-15T14:05:00Z")
		require.Len(s.t, s.times(), 3)
	})
}

func TestWrapper_closeWaitsForTheRun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		// virtual time
		p := s.wrapped("* * * * *", func() { time.Sleep(20 * time.Second) })
		s.until("2026-06-15T12:01:00Z")
		begun := time.Now()
		require.NoError(s.t, p.Close(context.Background()))
		require.Greater(s.t, time.Since(begun), 18*time.Second)
	})
}
