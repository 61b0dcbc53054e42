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
		p.wrap(spec, f, opts...)
		p.cron.Start()
	}
	return p
}

// wrap adds a wrapped entry that notes its runs.
func (p *process) wrap(spec string, f func(), opts ...guardcron.Option) {
	p.site.t.Helper()
	schedule := parsed(p.site.t, spec)
	wrapper, err := p.Wrapper("job", schedule, opts...)
	require.NoError(p.site.t, err)
	p.cron.Schedule(ahead{schedule, guardcron.Clock(p.Jobs)}, cron.NewChain(wrapper).Then(cron.FuncJob(func() {
		p.site.ran(context.Background(), p.who)
		if f != nil {
			f()
		}
	})))
}

// parsed returns the schedule of a spec, which may have a field for seconds.
func parsed(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	schedule, err := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(spec)
	require.NoError(t, err)
	return schedule
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
		// half a period after its multiples: with clocks that differ, two ticks once seemed to be
		// one
		"half past":                  {"30 * * * *", "2026-06-15T14:45:00Z", []string{"12:30:00 ran", "13:30:00 ran", "14:30:00 ran"}},
		"each day at noon":           {"0 12 * * *", "2026-06-17T13:00:00Z", []string{"12:00:00 ran", "12:00:00 ran"}},
		"twice in less than an hour": {"0,20 * * * *", "2026-06-15T13:30:00Z", []string{"12:20:00 ran", "13:00:00 ran", "13:20:00 ran"}},
		"each day at night":          {"0 22 * * *", "2026-06-16T23:00:00Z", []string{"22:00:00 ran", "22:00:00 ran"}},
		"seldom":                     {"0 3 * * 2", "2026-06-23T04:00:00Z", []string{"03:00:00 ran", "03:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var missed recorder
				p := s.wrapped(test.spec, nil, onMissed(missed.record))
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
	for _, schedule := range []cron.Schedule{nil, parsed(t, "0 0 30 2 *")} {
		wrapper, err := jobs.Wrapper("job", schedule)
		require.Equal(t, []string{"schedule"}, settings(err))
		require.ErrorContains(t, err, `guardcron: job "job"`)
		require.Nil(t, wrapper)
	}
	_, err := jobs.Wrapper("1s", parsed(t, "* * * * * *"))
	require.NoError(t, err)
	_, err = jobs.Wrapper("1s", parsed(t, "* * * * *"))
	require.Equal(t, []string{"name"}, settings(err), "it has that name already")
	_, err = jobs.AddFunc("1s", "@daily", none)
	require.Equal(t, []string{"name"}, settings(err), "for others as well")
	_, err = jobs.Wrapper("x@y", parsed(t, "* * * * *"), guardcron.WithHistory(0))
	require.ElementsMatch(t, []string{"name", "WithHistory"}, settings(err))
	_, err = jobs.Wrapper("delay", cron.Every(time.Minute))
	require.Equal(t, []string{"schedule"}, settings(err))
	require.ErrorContains(t, err, "AddFunc or Schedule")
	_, err = jobs.Wrapper("jitter", parsed(t, "* * * * *"), guardcron.WithJitter(time.Second))
	require.Equal(t, []string{"WithJitter"}, settings(err))
	require.ErrorContains(t, err, "AddFunc or Schedule")
}

func TestWrapper_isForOneJob(t *testing.T) {
	t.Parallel()
	jobs, _ := here(t)
	wrapper, err := jobs.Wrapper("job", parsed(t, "* * * * *"))
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
	wrapper, err := jobs.Wrapper("job", parsed(t, "* * * * *"))
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

// The options and schedules of the fault table, in three processes with different clocks: each is
// refused, or each tick is run once.
func TestWrapper_runsEachTickOnceWithEachOptionOrRefusesIt(t *testing.T) {
	t.Parallel()
	for title, feature := range plantFeatures {
		for _, spec := range []string{"*/20 * * * * *", "10 * * * *", "@every 20s"} {
			t.Run(title+", "+spec, func(t *testing.T) {
				t.Parallel()
				onSite(t, "2026-06-15T12:00:05Z", func(s *site) {
					p := s.process("first", setup{})
					if _, err := p.Wrapper("job", parsed(s.t, spec), feature.opts...); err != nil {
						require.NotEmpty(s.t, settings(err))
						return
					}
					s.wrapped(spec, nil, feature.opts...)
					s.until("2026-06-15T12:30:05Z")
					want := map[string]int{"*/20 * * * * *": 90, "10 * * * *": 1}[spec]
					require.Len(s.t, s.times(), want)
				})
			})
		}
	}
}

// A wrapped job is known to other programs, and can be triggered, before its first tick.
func TestWrapper_announcesTheJobBeforeItsFirstTick(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.wrap("0 3 1 * *", nil)
		p.cron.Start()
		s.sleep(time.Second)
		list, err := p.List(context.Background())
		require.NoError(s.t, err)
		require.Len(s.t, list, 1)
	})
}

// The only process is killed in a run, for a tick or by hand, and started again.
func TestWrapper_runThatWasAbandonedDoesNotStayRunning(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		at, back string
		byHand   bool
		want     []string
	}{
		"in time":  {"2026-06-15T13:00:05Z", "2026-06-15T13:00:50Z", false, []string{"13:00:00 lost", "13:00:00 ran", "14:00:00 ran"}},
		"too late": {"2026-06-15T13:00:05Z", "2026-06-15T13:30:00Z", false, []string{"13:00:00 lost", "13:00:00 missed", "14:00:00 ran"}},
		"by hand":  {"2026-06-15T12:30:00Z", "2026-06-15T13:30:00Z", true, []string{"by hand lost", "14:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				a := s.process("a", setup{})
				a.wrap("0 * * * *", func() { time.Sleep(time.Minute) }) // virtual time
				if test.byHand {
					go func() { _ = a.RunNow(context.Background(), "job") }()
					s.sleep(5 * time.Second)
				} else {
					a.cron.Start()
					s.until(test.at)
				}
				a.die()
				s.until(test.back)
				b := s.process("b", setup{})
				b.wrap("0 * * * *", nil)
				b.cron.Start()
				s.until("2026-06-15T14:00:30Z")
				require.Equal(s.t, test.want, b.outcomes("job"))
			})
		})
	}
}
