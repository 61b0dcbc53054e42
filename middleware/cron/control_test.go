package guardcron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestRunNow_runsForNoTickAndIsRecorded(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", nil, guardcron.WithObserver(o.record))
		require.NoError(s.t, p.RunNow(context.Background(), "job"), "the Cron need not be started")
		require.Equal(s.t, []string{""}, s.ticks(), "it has no tick")
		require.Equal(s.t, []string{"by hand ran"}, p.outcomes("job"))
		r := p.records("job")[0]
		require.Zero(s.t, r.Tick)
		require.NotZero(s.t, r.Fence)
		require.Equal(s.t, "a", r.Who)
		require.Equal(s.t, []guardcron.Record{r}, o.records)
		p.cron.Start()
		s.until("2026-06-15T13:00:10Z")
		require.Equal(s.t, []string{"", "2026-06-15T13:00:00Z"}, s.ticks(), "a run by hand takes no tick")
		require.NoError(s.t, p.RunNow(context.Background(), "job"))
		require.Len(s.t, s.ticks(), 3, "and it is not kept out by one")
	})
}

func TestRunNow_returnsTheErrorOfTheJob(t *testing.T) {
	t.Parallel()
	for _, overlap := range []guardcron.Overlap{guardcron.Skip, guardcron.Wait, guardcron.Allow} {
		onSite(t, noon, func(s *site) {
			p := s.process("a", setup{})
			p.add("job", "0 * * * *", func(context.Context) error { return errJob }, guardcron.WithOverlap(overlap))
			require.Equal(s.t, errJob, p.RunNow(context.Background(), "job"))
			require.Equal(s.t, []string{"by hand failed"}, p.outcomes("job"))
			require.Equal(s.t, errJob.Error(), p.records("job")[0].Reason)
			require.Equal(s.t, errJob, p.RunNow(context.Background(), "job"), "its lease is free")
		})
	}
}

func TestRunNow_whileTheJobRuns(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		overlap guardcron.Overlap
		err     error
		after   time.Duration
	}{
		"Skip":  {guardcron.Skip, guard.ErrBusy, 0},
		"Wait":  {guardcron.Wait, nil, 110 * time.Second},
		"Allow": {guardcron.Allow, nil, 20 * time.Second},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				a, b := s.process("a", setup{}), s.process("b", setup{})
				a.add("job", "0 * * * *", hanging(100*time.Second), guardcron.WithOverlap(test.overlap))
				b.add("job", "0 * * * *", hanging(20*time.Second), guardcron.WithOverlap(test.overlap))
				a.cron.Start()
				s.until("2026-06-15T13:00:10Z")
				begun := time.Now()
				err := b.RunNow(context.Background(), "job")
				require.ErrorIs(s.t, err, test.err)
				if test.err != nil {
					require.ErrorContains(s.t, err, `guardcron: job "job"`)
				}
				require.WithinRange(s.t, time.Now(), begun.Add(test.after), begun.Add(test.after+5*time.Second))
			})
		})
	}
}

func TestRunNow_twiceAtATimeWithAllow(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", hanging(time.Minute), guardcron.WithOverlap(guardcron.Allow))
		ended := make(chan error, 2)
		begun := time.Now()
		for range 2 {
			go func() { ended <- p.RunNow(context.Background(), "job") }()
		}
		require.NoError(s.t, <-ended)
		require.NoError(s.t, <-ended)
		require.Equal(s.t, time.Minute, time.Since(begun))
		require.NotEmpty(s.t, p.outcomes("job"))
	})
}

func TestRunNow_keepsTicksOut(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		a, b := s.process("a", setup{}), s.process("b", setup{})
		a.add("job", "0 * * * *", hanging(40*time.Minute))
		b.add("job", "0 * * * *", nil)
		b.cron.Start()
		s.until("2026-06-15T12:50:00Z")
		require.NoError(s.t, a.RunNow(context.Background(), "job"))
		require.ElementsMatch(s.t, []string{"by hand ran", "13:00:00 skipped"}, a.outcomes("job"))
		skipped := a.records("job")[0]
		require.Contains(s.t, skipped.Reason, "by hand a")
		require.Less(s.t, skipped.End.Sub(skipped.Tick), time.Second, "it does not look for long")
	})
}

func TestRunNow_endsWithItsContextAndWithJobs(t *testing.T) {
	t.Parallel()
	for _, overlap := range []guardcron.Overlap{guardcron.Wait, guardcron.Allow} {
		onSite(t, noon, func(s *site) {
			p := s.process("a", setup{})
			p.add("job", "0 * * * *", lasting(time.Hour), guardcron.WithOverlap(overlap))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.ErrorIs(s.t, p.RunNow(ctx, "job"), context.DeadlineExceeded)
			failed := make(chan error)
			go func() { failed <- p.RunNow(context.Background(), "job") }()
			synctest.Wait()
			go func() { _ = p.Close(ctx) }()
			require.ErrorIs(s.t, <-failed, guard.ErrClosed)
		})
	}
}

// Who waits by hand for a run elsewhere leaves when Jobs are closed.
func TestRunNow_thatWaitsLeavesWithJobs(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		a, b := s.process("a", setup{}), s.process("b", setup{})
		a.add("job", "0 * * * *", hanging(10*time.Minute), guardcron.WithOverlap(guardcron.Wait))
		b.add("job", "0 * * * *", nil, guardcron.WithOverlap(guardcron.Wait))
		a.cron.Start()
		s.until("2026-06-15T13:00:10Z")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(s.t, b.RunNow(ctx, "job"), context.DeadlineExceeded, "or with its context")
		failed := make(chan error)
		go func() { failed <- b.RunNow(context.Background(), "job") }()
		synctest.Wait()
		begun := time.Now()
		require.NoError(s.t, b.Close(context.Background()))
		require.ErrorIs(s.t, <-failed, guard.ErrClosed)
		require.Less(s.t, time.Since(begun), time.Second)
		require.Len(s.t, s.ticks(), 1)
	})
}

func TestRunNow_whatItRefuses(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", nil)
		require.EqualError(s.t, p.RunNow(context.Background(), "other"), `guardcron: there is no job "other"`)
		require.NoError(s.t, p.Close(context.Background()))
		err := p.RunNow(context.Background(), "job")
		require.ErrorIs(s.t, err, guard.ErrClosed)
		require.ErrorContains(s.t, err, `guardcron: job "job"`)
		require.Empty(s.t, s.ticks())
	})
}

func TestPause_ofAllProcesses(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		var missed recorder
		all := s.three(setup{}, "* * * * *", nil, guardcron.WithCatchUp(100), onMissed(missed.record))
		paused := func(want bool) {
			s.t.Helper()
			for _, p := range all {
				is, err := p.Paused(ctx, "job")
				require.NoError(s.t, err)
				require.Equal(s.t, want, is)
			}
		}
		paused(false)
		require.NoError(s.t, all[1].Resume(ctx, "job", alice), "which it is not")
		paused(false)
		s.until("2026-06-15T12:02:30Z")
		require.NoError(s.t, all[0].Pause(ctx, "job", 0, alice))
		require.NoError(s.t, all[2].Pause(ctx, "job", 0, alice), "twice is once")
		paused(true)
		s.until("2026-06-15T12:05:30Z")
		require.Len(s.t, s.ticks(), 2)
		require.NoError(s.t, all[1].RunNow(ctx, "job"), "by hand it runs")
		require.Len(s.t, s.ticks(), 3)
		require.NoError(s.t, all[1].Resume(ctx, "job", alice))
		paused(false)
		s.until("2026-06-15T12:07:30Z")
		require.Equal(s.t, []string{"", "2026-06-15T12:01:00Z", "2026-06-15T12:02:00Z", "2026-06-15T12:06:00Z", "2026-06-15T12:07:00Z"}, s.ticks(),
			"what came meanwhile is not caught up with")
		require.ElementsMatch(s.t, []string{"12:01:00 ran", "12:02:00 ran", "12:03:00 skipped", "12:04:00 skipped", "12:05:00 skipped", "by hand ran",
			"12:06:00 ran", "12:07:00 ran"}, all[0].outcomes("job"))
		require.Empty(s.t, missed.outcomes())
		for _, r := range all[0].records("job") {
			if r.Result == guardcron.Skipped {
				require.Equal(s.t, "the job is paused", r.Reason)
			}
		}
	})
}

func TestPause_outlivesProcessesAndIsOfOneJob(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		admin := s.process("admin", setup{})
		require.NoError(s.t, admin.Pause(ctx, "job", 0, alice), "also one that is registered elsewhere")
		admin.end()
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.add("other", "30 * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:31:30Z")
		require.Equal(s.t, []string{"2026-06-15T12:30:00Z"}, s.ticks())
		require.Equal(s.t, []string{"12:30:00 ran"}, p.outcomes("other"))
	})
}

// Runs that are under way go on.
func TestPause_endsNoRun(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", lasting(10*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T13:01:00Z")
		require.NoError(s.t, p.Pause(context.Background(), "job", 0, alice))
		s.until("2026-06-15T13:30:00Z")
		require.Equal(s.t, []string{"13:00:00 ran"}, p.outcomes("job"))
	})
}

func TestPause_whatItRefuses(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		p := s.process("a", setup{})
		for _, name := range []string{"{job}", "job"} {
			_, err := p.Paused(ctx, name)
			for _, err := range []error{p.Pause(ctx, name, 0, alice), p.Resume(ctx, name, alice), err} {
				if name == "job" {
					require.ErrorIs(s.t, err, guard.ErrStore)
				}
				require.ErrorContains(s.t, err, "guardcron: job \""+name+"\"")
			}
			p.line.cut.Store(true)
		}
	})
}

// The lease of the run is in its context, and RunNow does not join it.
func TestRunNow_withinARunOfTheJobIsBusy(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		busy guardcron.Overlap
		err  error
	}{"Skip": {guardcron.Skip, guard.ErrBusy}, "Wait": {guardcron.Wait, guard.ErrBusy}, "Allow": {guardcron.Allow, nil}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				p := s.process("a", setup{})
				p.add("other", "0 3 * * *", func(ctx context.Context) error { return p.RunNow(ctx, "job") })
				p.add("job", "0 * * * *", func(ctx context.Context) error {
					if len(s.ticks()) > 1 {
						return nil
					}
					require.ErrorIs(s.t, p.RunNow(ctx, "job"), test.err)
					require.ErrorIs(s.t, p.RunNow(ctx, "other"), test.err, "by another job")
					return nil
				}, guardcron.WithOverlap(test.busy))
				p.cron.Start()
				s.until("2026-06-15T13:00:30Z")
				require.Contains(s.t, p.outcomes("job"), "13:00:00 ran")
			})
		})
	}
}

// A user may call the job of an entry before the Cron is started.
func TestEntry_calledBeforeTheStartDoesNothing(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var o recorder
		p := s.process("a", setup{})
		id := p.add("job", "0 3 * * *", nil, guardcron.WithObserver(o.record))
		p.cron.Entry(id).WrappedJob.Run()
		s.sleep(2 * time.Minute)
		require.Empty(s.t, s.ticks())
		require.Empty(s.t, o.outcomes())
	})
}
