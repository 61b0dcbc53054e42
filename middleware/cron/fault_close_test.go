package guardcron_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// A procSite is a process with one job, "job", each second, with leases that last for half a
// minute: what must be at once does not wait for them.
type procSite struct {
	cron  *cron.Cron
	jobs  *guardcron.Jobs
	guard *guard.Guard
	waits chan string // the keys that it waits for
}

func procHere(t *testing.T, server *redistest.Server, f func(ctx context.Context) error, opts ...guardcron.Option) *procSite {
	t.Helper()
	s := &procSite{cron: cron.New(cron.WithSeconds(), cron.WithLogger(cron.DiscardLogger)), waits: make(chan string, 1000)}
	var err error
	s.guard, err = guard.New(single.New(server.Client(t)), guard.WithNamespace("test"), guard.WithHook(guard.Hook{Wait: func(_ context.Context, e guard.WaitEvent) { s.waits <- e.Key }}))
	require.NoError(t, err)
	s.jobs, err = guardcron.New(s.guard, s.cron, opts...)
	require.NoError(t, err)
	_, err = s.jobs.AddFunc("job", "* * * * * *", f)
	require.NoError(t, err)
	s.cron.Start()
	t.Cleanup(func() {
		s.cron.Stop()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.jobs.Close(ended)
		require.NoError(t, s.guard.Close(context.Background()))
	})
	return s
}

// closesSoon fails if Close does not return within some seconds, which is far less than a lease
// lasts.
func (s *procSite) closesSoon(t *testing.T) {
	t.Helper()
	s.cron.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	require.NoError(t, s.jobs.Close(ctx))
}

// receive waits for what a channel brings.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(procSoon):
		require.FailNow(t, "not in time: "+what)
		panic("unreachable")
	}
}

func TestClose_endsRunsThatOutlastItsContextAndGivesTheirLeasesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	begun, causes := make(chan time.Time, 100), make(chan error, 100)
	s := procHere(t, server, func(ctx context.Context) error {
		tick, _ := guardcron.Tick(ctx)
		begun <- tick
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	tick := receive(t, begun, "a run")
	stopped := s.cron.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.jobs.Close(ctx), context.DeadlineExceeded)
	require.Len(t, causes, 1, "it has not waited until the run has returned")
	require.ErrorIs(t, <-causes, guard.ErrClosed)
	receive(t, stopped.Done(), "the context of cron.Stop")
	require.NoError(t, s.jobs.Close(context.Background()), "the second time")

	next := make(chan time.Time, 100)
	other := procHere(t, server, func(ctx context.Context) error {
		tick, _ := guardcron.Tick(ctx)
		next <- tick
		return nil
	})
	require.NoError(t, other.jobs.RunNow(t.Context(), "job"), "the lease of the job has not been released")
	require.True(t, receive(t, next, "the run by hand").IsZero())
	require.Greater(t, receive(t, next, "a run of the next one"), tick)
	records, err := other.jobs.Records(t.Context(), "job", 100)
	require.NoError(t, err)
	outcomes := map[guardcron.Result]bool{}
	for _, r := range records {
		if r.Tick.Equal(tick) {
			outcomes[r.Result] = true
		}
	}
	require.Equal(t, map[guardcron.Result]bool{guardcron.Failed: true}, outcomes)
}

func TestClose_waitsForRuns(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan bool, 100), make(chan error, 100)
	s := procHere(t, redistest.Start(t), func(ctx context.Context) error {
		begun <- true
		time.Sleep(700 * time.Millisecond) // the work
		ended <- ctx.Err()
		return nil
	})
	receive(t, begun, "a run")
	stopped := s.cron.Stop()
	require.NoError(t, stopped.Err(), "nothing runs")
	require.NoError(t, s.jobs.Close(context.Background()))
	require.NoError(t, receive(t, ended, "its end"), "its context has ended")
	require.Empty(t, ended)
	receive(t, stopped.Done(), "the context of cron.Stop")
	require.ErrorIs(t, s.jobs.RunNow(t.Context(), "job"), guard.ErrClosed)
}

func TestClose_leavesATickThatRunsElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	begun, over := make(chan time.Time, 100), make(chan struct{})
	defer close(over)
	f := func(ctx context.Context) error {
		tick, _ := guardcron.Tick(ctx)
		begun <- tick
		<-over
		return nil
	}
	sites := []*procSite{procHere(t, server, f), procHere(t, server, f)}
	tick := receive(t, begun, "a run").Format(time.RFC3339)
	var waiting *procSite
	for waiting == nil {
		select {
		case key := <-sites[0].waits:
			if key == "cron:job@"+tick {
				waiting = sites[0]
			}
		case key := <-sites[1].waits:
			if key == "cron:job@"+tick {
				waiting = sites[1]
			}
		case <-time.After(procSoon):
			require.FailNow(t, "no process waits for the tick")
		}
	}
	waiting.closesSoon(t)
}

// The process that leaves has ticks that still wait. The process that stays runs them.
func TestClose_leavesAJobThatRunsElsewhereAndItsTicksToOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	begun, over := make(chan time.Time, 100), make(chan struct{})
	f := func(ctx context.Context) error {
		tick, _ := guardcron.Tick(ctx)
		begun <- tick
		select {
		case <-over:
		case <-ctx.Done():
		}
		return nil
	}
	opts := []guardcron.Option{guardcron.WithOverlap(guardcron.Wait)}
	stays := procHere(t, server, f, opts...)
	first := receive(t, begun, "a run")
	leaves := procHere(t, server, func(context.Context) error { begun <- time.Time{}; return nil }, opts...)
	byHand := make(chan error, 1)
	go func() { byHand <- leaves.jobs.RunNow(context.Background(), "job") }()
	for waits := 0; waits < 2; { // one of them by hand
		if receive(t, leaves.waits, "the wait for the job") == "cron:job" {
			waits++
		}
	}
	last := time.Now().Truncate(time.Second)
	leaves.closesSoon(t)
	require.ErrorIs(t, receive(t, byHand, "the end of the run by hand"), guard.ErrClosed)
	close(over)
	ran := map[time.Time]bool{first: true}
	missing := func() bool {
		for tick := first; !tick.After(last); tick = tick.Add(time.Second) {
			if !ran[tick.UTC()] {
				return true
			}
		}
		return false
	}
	for limit := time.Now().Add(procSoon); missing(); {
		require.True(t, time.Now().Before(limit), "ticks are lost: %v", ran)
		tick := receive(t, begun, "the ticks that were left")
		require.False(t, tick.IsZero(), "a run in the process that was closed")
		require.False(t, ran[tick], "twice: %v", tick)
		ran[tick] = true
	}
	stays.closesSoon(t)
}
