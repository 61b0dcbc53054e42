package guardcron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The usual way to end a Cron, on a process that waits for a tick which another one runs.
func TestCronStop_doesNotWaitForATickThatRunsElsewhere(t *testing.T) {
	t.Parallel()
	for title, opts := range map[string][]guardcron.Option{
		"Skip": nil, "Wait": {guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(2 * time.Minute)}, "Allow": {guardcron.WithOverlap(guardcron.Allow)},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				runs := s.process("runs", setup{skew: time.Second})
				runs.add("job", "* * * * *", hanging(10*time.Minute), opts...)
				runs.cron.Start()
				s.until("2026-06-15T12:01:00Z")
				p := s.process("watches", setup{})
				p.add("job", "* * * * *", nil, opts...)
				p.cron.Start()
				s.until("2026-06-15T12:02:10Z")
				begun := time.Now()
				<-p.cron.Stop().Done()
				require.NoError(s.t, p.Close(context.Background()))
				require.Zero(s.t, time.Since(begun))
			})
		})
	}
}

// The process has the tick, and the job runs elsewhere.
func TestCronStop_doesNotWaitForATickThatWaitsForTheJob(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		opts := []guardcron.Option{guardcron.WithOverlap(guardcron.Wait), guardcron.WithStartDeadline(20 * time.Minute)}
		runs := s.process("runs", setup{})
		runs.add("job", "* * * * *", hanging(10*time.Minute), opts...)
		runs.cron.Start()
		s.until("2026-06-15T12:01:00Z")
		p := s.process("waits", setup{skew: 2 * time.Second})
		p.add("job", "* * * * *", nil, opts...)
		p.cron.Start()
		s.until("2026-06-15T12:01:59Z")
		begun := time.Now()
		<-p.cron.Stop().Done()
		require.NoError(s.t, p.Close(context.Background()))
		require.Zero(s.t, time.Since(begun))
	})
}

// After that, a process takes over nothing: its program may have closed what the job needs.
func TestCronStop_endsTakeovers(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		all := s.three(setup{}, "0 * * * *", hanging(20*time.Second))
		s.until("2026-06-15T13:00:01Z")
		<-all[0].cron.Stop().Done()
		<-all[1].cron.Stop().Done()
		all[2].die()
		s.until("2026-06-15T13:10:00Z")
		require.Len(s.t, s.ticks(), 1)
	})
}

func TestClose_returnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", hanging(10*time.Minute))
		p.cron.Start()
		s.until("2026-06-15T12:01:01Z")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		err := p.Close(ctx)
		require.ErrorIs(s.t, err, context.DeadlineExceeded)
		require.ErrorContains(s.t, err, "1 have not returned")
		require.WithinRange(s.t, time.Now(), begun.Add(5*time.Second), begun.Add(5100*time.Millisecond))
		s.until("2026-06-15T12:12:00Z")
		require.NoError(s.t, p.Close(context.Background()), "it has returned")
	})
}

// A run that takes over passes the chain of the Cron, and cron.Stop waits for it.
func TestTakeover_runsAsTheCronRunsJobs(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var c caught
		a := s.process("a", setup{skew: time.Second})
		a.add("job", "0 * * * *", hanging(time.Minute))
		a.cron.Start()
		b := s.process("b", setup{cron: c.cron()})
		b.add("job", "0 * * * *", func(context.Context) error {
			time.Sleep(20 * time.Second) // virtual time
			panic(errPanic)
		})
		b.cron.Start()
		s.until("2026-06-15T13:00:05Z")
		a.die()
		s.until("2026-06-15T13:00:40Z")
		require.Len(s.t, s.ticks(), 2)
		require.Len(s.t, b.cron.Entries(), 1, "nothing is left in the Cron")
		begun := time.Now()
		<-b.cron.Stop().Done()
		require.Greater(s.t, time.Since(begun), 5*time.Second)
		require.Equal(s.t, []error{errPanic}, c.errs)
		synctest.Wait()
		require.Contains(s.t, b.outcomes("job"), "13:00:00 failed")
	})
}
