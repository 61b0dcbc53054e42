package guardcron_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// Three processes have a job that is never due while the test runs. Another program triggers it.
func TestTrigger_runsTheJobOnceInOneOfTheProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	open := func() *guard.Guard {
		// the leases of a trigger are exclusive nevertheless
		g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace("test"), guard.WithLimit(2))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		return g
	}
	var ran, wrappedRan atomic.Int32
	for range 3 {
		c := cron.New(cron.WithChain(cron.Recover(cron.DiscardLogger)))
		jobs, err := guardcron.New(open(), c)
		require.NoError(t, err)
		_, err = jobs.AddFunc("nightly", "0 3 29 2 *", func(context.Context) error {
			ran.Add(1)
			if ran.Load() == 2 {
				panic("a job that panics does not end the process")
			}
			return nil
		})
		require.NoError(t, err)
		every := parsed(t, "* * * * * *")
		wrapper, err := jobs.Wrapper("wrapped", every)
		require.NoError(t, err)
		c.Schedule(every, cron.NewChain(wrapper).Then(cron.FuncJob(func() { wrappedRan.Add(1) })))
		c.Start()
		t.Cleanup(func() {
			<-c.Stop().Done()
			require.NoError(t, jobs.Close(context.Background()))
		})
	}
	control, err := guardcron.NewControl(open())
	require.NoError(t, err)
	ctx := t.Context()
	require.Eventually(t, func() bool {
		all, err := control.List(ctx)
		require.NoError(t, err)
		return len(all) == 2
	}, 10*time.Second, 10*time.Millisecond, "both jobs are announced")
	// Those processes may not subscribe yet. They look when they do.
	require.NoError(t, control.Pause(ctx, "nightly"))
	for want := int32(1); want <= 3; want++ {
		require.NoError(t, control.Trigger(ctx, "nightly"))
		require.Eventually(t, func() bool { return ran.Load() == want }, 10*time.Second, time.Millisecond)
		require.Eventually(t, func() bool {
			records, err := control.Records(ctx, "nightly", 10)
			require.NoError(t, err)
			return len(records) == int(want) && records[0].Outcome != guardcron.Running
		}, 10*time.Second, 10*time.Millisecond)
		time.Sleep(2 * time.Millisecond) // triggers are distinguished by milliseconds
	}
	require.Equal(t, int32(3), ran.Load())
	records, err := control.Records(ctx, "nightly", 10)
	require.NoError(t, err)
	var outcomes []guardcron.Outcome
	for _, r := range records {
		require.True(t, r.Tick.IsZero(), "it is a run by hand")
		outcomes = append(outcomes, r.Outcome)
	}
	require.Equal(t, []guardcron.Outcome{guardcron.Ran, guardcron.Panicked, guardcron.Ran}, outcomes)

	require.Eventually(t, func() bool { return wrappedRan.Load() > 0 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, control.Trigger(ctx, "wrapped"))
	require.Eventually(t, func() bool {
		records, err := control.Records(ctx, "wrapped", 100)
		require.NoError(t, err)
		for _, r := range records {
			if r.Tick.IsZero() {
				return true
			}
		}
		return false
	}, 10*time.Second, 10*time.Millisecond, "the wrapped job runs by hand")

	require.ErrorContains(t, control.Trigger(ctx, "weekly"), `job "weekly": no process has announced it`)
}

func TestTrigger_needsABackendThatNotifies(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		require.ErrorContains(s.t, p.Trigger(context.Background(), "job"), "RunNow")
	})
}

func TestList_showsTheJobsOfAllProcesses(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		for i, spec := range []string{"0 3 * * *", "0 3 * * *", "0 4 * * *"} {
			p := s.process(fmt.Sprint(i), setup{})
			p.add("nightly", spec, nil)
			p.add(fmt.Sprintf("own of %d", i), "* * * * *", nil)
			p.cron.Start()
			s.sleep(30 * time.Minute)
			p.end()
		}
		admin := s.process("admin", setup{})
		require.NoError(s.t, admin.Pause(ctx, "own of 1"))
		all, err := admin.List(ctx)
		require.NoError(s.t, err)
		hour := instant(s.t, "2026-06-15T12:00:00Z")
		require.Equal(s.t, []guardcron.JobInfo{
			{Name: "nightly", Spec: "0 4 * * *", Seen: hour.Add(time.Hour)},
			{Name: "own of 0", Spec: "* * * * *", Seen: hour},
			{Name: "own of 1", Spec: "* * * * *", Seen: hour, Paused: true},
			{Name: "own of 2", Spec: "* * * * *", Seen: hour.Add(time.Hour)},
		}, all)
	})
}

func TestPauseFor_endsByItself(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		ctx := context.Background()
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		require.NoError(s.t, p.PauseFor(ctx, "job", 2*time.Minute))
		s.until("2026-06-15T12:04:30Z")
		require.NoError(s.t, p.PauseFor(ctx, "job", time.Hour))
		s.until("2026-06-15T12:05:30Z")
		require.NoError(s.t, p.PauseFor(ctx, "job", time.Minute)) // instead
		s.until("2026-06-15T12:07:30Z")
		require.NoError(s.t, p.PauseFor(ctx, "job", time.Minute))
		require.NoError(s.t, p.Pause(ctx, "job")) // instead
		s.until("2026-06-15T12:09:30Z")
		paused, err := p.Paused(ctx, "job")
		require.NoError(s.t, err)
		require.True(s.t, paused)
		require.NoError(s.t, p.Resume(ctx, "job"))
		require.NoError(s.t, p.Resume(ctx, "job"))
		s.until("2026-06-15T12:10:30Z")
		require.Equal(s.t, []string{
			"12:01:00 ran", "12:02:00 skipped", "12:03:00 skipped", "12:04:00 ran", "12:05:00 skipped", "12:06:00 skipped",
			"12:07:00 ran", "12:08:00 skipped", "12:09:00 skipped", "12:10:00 ran",
		}, p.outcomes("job"))
		require.ErrorContains(s.t, p.PauseFor(ctx, "job", 0), "PauseFor")
	})
}

// All processes are down while a pause ends by itself.
func TestPauseFor_endsWhileNobodyIsUp(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		require.NoError(s.t, p.PauseFor(context.Background(), "job", 3*time.Minute))
		p.end()
		s.until("2026-06-15T12:06:30Z")
		p = s.process("b", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:07:30Z")
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00-12:04:00 skipped", "12:05:00 missed", "12:06:00 missed", "12:07:00 ran"}, p.outcomes("job"))
	})
}

func TestNewControl_refusesAGuardWithoutALedger(t *testing.T) {
	t.Parallel()
	g, err := guard.New(struct{ guard.Locker }{memory.New()}, guard.WithNamespace("test"))
	require.NoError(t, err)
	for _, g := range []*guard.Guard{nil, g} {
		_, err := guardcron.NewControl(g)
		var bad *guard.SettingError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "guard", bad.Setting)
	}
}

// A trigger counts even if the clock of its caller is behind that of the previous caller. If the
// clock is far behind, the trigger cannot count, and the caller gets an error.
func TestTrigger_byAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace("test"))
	require.NoError(t, err)
	c := cron.New()
	jobs, err := guardcron.New(g, c)
	require.NoError(t, err)
	runs := make(chan struct{}, 10)
	_, err = jobs.AddFunc("nightly", "0 3 29 2 *", func(context.Context) error { runs <- struct{}{}; return nil })
	require.NoError(t, err)
	admin, err := guardcron.New(g, cron.New())
	require.NoError(t, err)
	c.Start()
	t.Cleanup(func() {
		<-c.Stop().Done()
		for _, j := range []*guardcron.Jobs{jobs, admin} {
			require.NoError(t, j.Close(context.Background()))
		}
		require.NoError(t, g.Close(context.Background()))
	})
	require.Eventually(t, func() bool {
		all, err := admin.List(t.Context())
		return err == nil && len(all) == 1
	}, 10*time.Second, 10*time.Millisecond, "the job is announced")
	for _, behind := range []time.Duration{0, -30 * time.Second, -10 * time.Second} {
		guardcron.SetClock(admin, behind)
		require.NoError(t, admin.Trigger(t.Context(), "nightly"))
		receive(t, runs, "a run")
	}
	guardcron.SetClock(admin, -time.Hour)
	require.ErrorContains(t, admin.Trigger(t.Context(), "nightly"), "clocks is wrong")
}
