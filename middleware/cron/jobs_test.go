package guardcron_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestStart_firstOneEverHasNothingToCatchUpWith(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"2026-06-15T12:00:00Z", "2026-06-15T12:00:00.0000004Z", "2026-06-15T12:00:30Z", "2026-06-15T12:00:59.999Z"} {
		onSite(t, begin, func(s *site) {
			var missed recorder
			p := s.process("a", setup{})
			p.add("job", "* * * * *", nil, guardcron.WithCatchUp(100), guardcron.WithStartDeadline(5*time.Minute), onMissed(missed.record))
			p.cron.Start()
			s.until("2026-06-15T12:02:01Z")
			require.Equal(s.t, []string{"2026-06-15T12:01:00Z", "2026-06-15T12:02:00Z"}, s.ticks(), begin)
			require.Empty(s.t, missed.outcomes())
		})
	}
}

// The store, which could not be asked then, has no tick: that is no standstill since 1970.
func TestStart_whileTheStoreCannotBeAsked(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", nil, guardcron.WithCatchUp(1), guardcron.WithObserver(o.record))
		p.line.cut.Store(true)
		p.cron.Start()
		s.until("2026-06-15T12:30:00Z")
		p.line.cut.Store(false)
		s.until("2026-06-15T13:30:00Z")
		require.Equal(s.t, []string{"13:00:00 ran"}, o.outcomes())
	})
}

// One run at 13:00, then no process is up until 17:10:30, which is 10:30 after a tick.
func TestWithCatchUp_afterAGap(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		opts        []guardcron.Option
		ran, missed []string
	}{
		"no catch-up is the default": {nil, nil, []string{"14:00:00-17:00:00 missed"}},
		"no catch-up":                {[]guardcron.Option{guardcron.WithCatchUp(0)}, nil, []string{"14:00:00-17:00:00 missed"}},
		"the newest": {[]guardcron.Option{guardcron.WithCatchUp(1)}, []string{"2026-06-15T17:00:00Z"},
			[]string{"14:00:00-16:00:00 missed"}},
		"two": {[]guardcron.Option{guardcron.WithCatchUp(2)}, []string{"2026-06-15T16:00:00Z", "2026-06-15T17:00:00Z"},
			[]string{"14:00:00-15:00:00 missed"}},
		"more than there are": {[]guardcron.Option{guardcron.WithCatchUp(100)}, every(t, time.Hour, "2026-06-15T14:00:00Z", "2026-06-15T17:00:00Z"), []string{}},
		"none from before it was up, even in time": {[]guardcron.Option{guardcron.WithStartDeadline(11 * time.Minute)}, nil,
			[]string{"14:00:00-16:00:00 missed", "17:00:00 missed"}},
		"that of a window which is over": {[]guardcron.Option{guardcron.WithCatchUp(100), guardcron.WithTickMemory(time.Hour)},
			every(t, time.Hour, "2026-06-15T14:00:00Z", "2026-06-15T17:00:00Z"), []string{}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var missed recorder
				opts := slices.Concat(test.opts, []guardcron.Option{onMissed(missed.record)})
				first := s.process("first", setup{})
				first.add("job", "0 * * * *", nil, opts...)
				first.cron.Start()
				s.until("2026-06-15T13:30:00Z")
				first.end()
				s.forget()
				s.until("2026-06-15T17:10:30Z")
				all := s.three(setup{}, "0 * * * *", lasting(time.Second), opts...)
				s.until("2026-06-15T17:30:00Z")
				require.Equal(s.t, append([]string{}, test.ran...), s.ticks())
				require.ElementsMatch(s.t, test.missed, missed.outcomes(), "each is reported once, by one process")
				s.until("2026-06-15T19:30:00Z")
				require.Equal(s.t, append(append([]string{}, test.ran...), "2026-06-15T18:00:00Z", "2026-06-15T19:00:00Z"), s.ticks())
				require.Len(s.t, missed.outcomes(), len(test.missed))
				require.Len(s.t, all[0].records("job"), 3+len(test.ran)+len(test.missed))
			})
		})
	}
}

func TestCatchUp_runsTheOldestFirst(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T13:30:00Z")
		p.end()
		s.until("2026-06-15T17:10:00Z")
		p = s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(20*time.Second), guardcron.WithCatchUp(3), guardcron.WithObserver(o.record))
		p.cron.Start()
		s.until("2026-06-15T17:30:00Z")
		require.Equal(s.t, []string{"14:00:00 missed", "15:00:00 ran", "16:00:00 ran", "17:00:00 ran"}, o.outcomes())
	})
}

// What was caught up with is known for longer than the markers stand.
func TestCatchUp_onceEvenIfTheWindowIsOver(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		// each for ten minutes, in which no tick is due
		for _, from := range []string{"2026-06-15T12:30:30Z", "2026-06-15T15:30:00Z", "2026-06-15T18:30:00Z"} {
			s.until(from)
			p := s.process("a", setup{})
			p.add("job", "0 * * * *", nil, guardcron.WithCatchUp(100), guardcron.WithTickMemory(time.Hour))
			p.cron.Start()
			s.sleep(10 * time.Minute)
			p.end()
		}
		require.Equal(s.t, every(s.t, time.Hour, "2026-06-15T13:00:00Z", "2026-06-15T18:00:00Z"), s.ticks())
	})
}

// What many years have left out is not walked through for ever, and the newest ticks are those
// that count.
func TestCatchUp_afterVeryManyTicks(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "@every 1s", nil)
		p.cron.Start()
		s.sleep(3 * time.Second)
		p.end()
		s.forget()
		s.until("2026-06-15T13:00:00.5Z")
		var missed recorder
		p = s.process("a", setup{})
		p.add("job", "@every 1s", nil, guardcron.WithCatchUp(1), guardcron.WithStartDeadline(2*time.Second), onMissed(missed.record))
		p.cron.Start()
		s.sleep(time.Millisecond)
		require.Equal(s.t, []string{"2026-06-15T13:00:00Z"}, s.ticks())
		s.sleep(400 * time.Millisecond)
		require.Len(s.t, missed.records, 1)
		r := missed.records[0]
		require.Equal(s.t, "12:00:34-12:59:58 missed", text(r))
		require.Equal(s.t, 59*60+25, r.Ticks, "12:00:31 to 12:00:33 were run")
	})
}

// A schedule whose ticks are many for a while: the window has to be that of its longest period, or
// what ran on Friday would be found missed on Monday.
func TestCatchUp_ofAnUnevenSchedule(t *testing.T) {
	t.Parallel()
	onSite(t, "2026-06-19T08:30:00Z", func(s *site) { // a Friday
		var missed recorder
		s.three(setup{}, "0 9-17 * * 1-5", nil, guardcron.WithCatchUp(5), onMissed(missed.record))
		s.until("2026-06-22T12:30:00Z")
		require.Len(s.t, s.ticks(), 9+4)
		require.Empty(s.t, missed.outcomes())
	})
}

// The process that runs a tick dies: one of the processes that wait for the tick runs it.
func TestDeath_anotherProcessRunsTheTickInTime(t *testing.T) {
	t.Parallel()
	for title, opts := range map[string][]guardcron.Option{
		"Skip":  {guardcron.WithOverlap(guardcron.Skip)},
		"Wait":  {guardcron.WithOverlap(guardcron.Wait)},
		"Allow": {guardcron.WithOverlap(guardcron.Allow)},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				var missed recorder
				all := s.three(setup{guard: []guard.Option{guard.WithTTL(20 * time.Second)}}, "0 * * * *", lasting(30*time.Second),
					append(opts, onMissed(missed.record))...)
				s.until("2026-06-15T13:00:05Z")
				require.Len(s.t, s.ticks(), 1)
				all[2].die() // it is ahead
				s.until("2026-06-15T13:05:00Z")
				require.Equal(s.t, []string{"2026-06-15T13:00:00Z", "2026-06-15T13:00:00Z"}, s.ticks(), "by one other")
				records := all[0].records("job")
				require.Len(s.t, records, 2)
				require.Equal(s.t, guardcron.Ran, records[0].Result)
				require.NotEqual(s.t, "c", records[0].Who)
				require.Equal(s.t, guardcron.Lost, records[1].Result, "its process has not finished it")
				require.Equal(s.t, "c", records[1].Who)
				require.Greater(s.t, records[0].Fence, records[1].Fence)
				require.WithinDuration(s.t, instant(s.t, "2026-06-15T13:00:00Z"), records[0].Start, 50*time.Second, "before the deadline")
				s.until("2026-06-15T15:05:00Z")
				require.Empty(s.t, missed.outcomes())
				require.Len(s.t, s.ticks(), 4)
			})
		})
	}
}

// Where the lease ends too late for that, the next tick finds it.
func TestDeath_isReportedOnceIfItIsTooLate(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		opts []guardcron.Option
		want []string
	}{
		"and missed": {nil, []string{"13:00:00 lost", "13:00:00 missed", "14:00:00 ran", "15:00:00 ran"}},
		"and run, with catch-up": {[]guardcron.Option{guardcron.WithCatchUp(1)},
			[]string{"13:00:00 lost", "13:00:00 ran", "14:00:00 ran", "15:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				opts := slices.Concat(test.opts, []guardcron.Option{guardcron.WithStartDeadline(10 * time.Second), guardcron.WithOverlap(guardcron.Allow)})
				all := s.three(setup{guard: []guard.Option{guard.WithTTL(20 * time.Second)}}, "0 * * * *", hanging(15*time.Second), opts...)
				s.until("2026-06-15T13:00:05Z")
				all[2].die()
				s.until("2026-06-15T15:05:00Z")
				require.ElementsMatch(s.t, test.want, all[0].outcomes("job"))
			})
		})
	}
}

// A process that is alone dies, and is back in time.
func TestDeath_processThatIsBackRunsItsTick(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 3 * * *", hanging(time.Minute))
		p.cron.Start()
		s.until("2026-06-16T03:00:05Z")
		p.die()
		s.sleep(10 * time.Second)
		p = s.process("b", setup{})
		p.add("job", "0 3 * * *", nil)
		p.cron.Start()
		s.until("2026-06-16T03:02:00Z")
		require.Equal(s.t, []string{"2026-06-16T03:00:00Z", "2026-06-16T03:00:00Z"}, s.ticks())
		require.Equal(s.t, "b", p.records("job")[0].Who)
	})
}

// By default a tick is run once, whether it fails or not.
func TestWithRerun(t *testing.T) {
	t.Parallel()
	fails := func(context.Context) error { return errJob }
	for title, test := range map[string]struct {
		opts []guardcron.Option
		want []string
	}{
		"without":         {nil, []string{"13:00:00 failed"}},
		"with":            {[]guardcron.Option{guardcron.WithRerun()}, []string{"13:00:00 failed", "13:00:00 failed", "13:00:00 ran"}},
		"with, and Allow": {[]guardcron.Option{guardcron.WithRerun(), guardcron.WithOverlap(guardcron.Allow)}, []string{"13:00:00 failed", "13:00:00 failed", "13:00:00 ran"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				// The process that is ahead fails, and so does one of the processes that wait.
				var calls atomic.Int32
				all := s.three(setup{}, "0 * * * *", func(ctx context.Context) error {
					if calls.Add(1) < 3 {
						return fails(ctx)
					}
					return nil
				}, test.opts...)
				s.until("2026-06-15T13:30:00Z")
				require.ElementsMatch(s.t, test.want, all[0].outcomes("job"))
				for _, r := range all[0].records("job") {
					require.Equal(s.t, r.Result == guardcron.Failed, r.Reason == errJob.Error(), r)
				}
			})
		})
	}
}

func TestClose_endsTheContextsWhenItsOwnEnds(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		var cause error
		p.add("job", "0 * * * *", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		p.cron.Start()
		s.until("2026-06-15T13:00:00Z")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		require.ErrorIs(s.t, p.Close(ctx), context.DeadlineExceeded)
		require.Equal(s.t, 10*time.Second, time.Since(begun))
		require.ErrorIs(s.t, cause, guard.ErrClosed)
		require.NotErrorIs(s.t, cause, guard.ErrLost)
		require.Equal(s.t, []string{"13:00:00 failed"}, p.outcomes("job"))
		require.NoError(s.t, p.Close(context.Background()), "again")
		other := s.process("b", setup{})
		other.add("job", "0 * * * *", nil)
		require.NoError(s.t, other.RunNow(context.Background(), "job"), "the lease of the job is released")
		s.until("2026-06-15T15:00:00Z")
		require.Len(s.t, s.ticks(), 2, "the Cron goes on, and runs nothing")
	})
}

func TestClose_waitsForRunsOfJobs(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(20*time.Second))
		p.cron.Start()
		s.until("2026-06-15T13:00:00Z")
		closed := make(chan error, 2)
		begun := time.Now()
		stopped := p.cron.Stop()
		require.NoError(s.t, stopped.Err(), "nothing runs")
		for range 2 {
			go func() { closed <- p.Close(context.Background()) }()
		}
		require.NoError(s.t, <-closed)
		require.NoError(s.t, <-closed)
		require.Equal(s.t, 20*time.Second, time.Since(begun))
		require.Equal(s.t, []string{"13:00:00 ran"}, p.outcomes("job"))
	})
}
