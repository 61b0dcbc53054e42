package guardcron_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
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
	var ran atomic.Int32
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
		return len(all) == 1
	}, procSoon, 10*time.Millisecond, "the job is announced")
	// Those processes may not subscribe yet. They look when they do.
	require.NoError(t, control.Pause(ctx, "nightly", 0, alice))
	for want := int32(1); want <= 3; want++ {
		require.NoError(t, control.Trigger(ctx, "nightly", alice))
		require.Eventually(t, func() bool { return ran.Load() == want }, procSoon, time.Millisecond)
		require.Eventually(t, func() bool {
			records, err := control.Records(ctx, "nightly", 10)
			require.NoError(t, err)
			return len(records) == int(want) && records[0].Result != guardcron.Running
		}, procSoon, 10*time.Millisecond)
		time.Sleep(2 * time.Millisecond) // triggers are distinguished by milliseconds
	}
	require.Equal(t, int32(3), ran.Load())
	records, err := control.Records(ctx, "nightly", 10)
	require.NoError(t, err)
	var outcomes []guardcron.Result
	for _, r := range records {
		require.True(t, r.Tick.IsZero(), "it is a run by hand")
		outcomes = append(outcomes, r.Result)
	}
	require.Equal(t, []guardcron.Result{guardcron.Ran, guardcron.Failed, guardcron.Ran}, outcomes)

	require.ErrorContains(t, control.Trigger(ctx, "weekly", alice), `job "weekly": no process has announced it`)
}

func TestTrigger_needsABackendThatNotifies(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		p.add("job", "* * * * *", nil)
		p.cron.Start()
		s.until("2026-06-15T12:01:30Z")
		require.ErrorContains(s.t, p.Trigger(context.Background(), "job", alice), "RunNow")
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
		require.NoError(s.t, admin.Pause(ctx, "own of 1", 0, alice))
		all, err := admin.List(ctx)
		require.NoError(s.t, err)
		hour := instant(s.t, "2026-06-15T12:00:00Z")
		require.Equal(s.t, []guardcron.JobInfo{
			{Name: "nightly", Spec: "0 4 * * *", Zone: "UTC", Seen: hour.Add(time.Hour)},
			{Name: "own of 0", Spec: "* * * * *", Zone: "UTC", Seen: hour},
			{Name: "own of 1", Spec: "* * * * *", Zone: "UTC", Seen: hour, Paused: true},
			{Name: "own of 2", Spec: "* * * * *", Zone: "UTC", Seen: hour.Add(time.Hour)},
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
		require.NoError(s.t, p.Pause(ctx, "job", 2*time.Minute, alice))
		s.until("2026-06-15T12:04:30Z")
		require.NoError(s.t, p.Pause(ctx, "job", time.Hour, alice))
		s.until("2026-06-15T12:05:30Z")
		require.NoError(s.t, p.Pause(ctx, "job", time.Minute, alice)) // instead
		s.until("2026-06-15T12:07:30Z")
		require.NoError(s.t, p.Pause(ctx, "job", time.Minute, alice))
		require.NoError(s.t, p.Pause(ctx, "job", 0, alice)) // instead
		s.until("2026-06-15T12:09:30Z")
		paused, err := p.Paused(ctx, "job")
		require.NoError(s.t, err)
		require.True(s.t, paused)
		require.NoError(s.t, p.Resume(ctx, "job", alice))
		require.NoError(s.t, p.Resume(ctx, "job", alice))
		s.until("2026-06-15T12:10:30Z")
		require.Equal(s.t, []string{
			"12:01:00 ran", "12:02:00 skipped", "12:03:00 skipped", "12:04:00 ran", "12:05:00 skipped", "12:06:00 skipped",
			"12:07:00 ran", "12:08:00 skipped", "12:09:00 skipped", "12:10:00 ran",
		}, p.outcomes("job"))
		require.ErrorContains(s.t, p.Pause(ctx, "job", time.Microsecond, alice), "Pause")
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
		require.NoError(s.t, p.Pause(context.Background(), "job", 3*time.Minute, alice))
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
	}, procSoon, 10*time.Millisecond, "the job is announced")
	for _, behind := range []time.Duration{0, -30 * time.Second, -10 * time.Second} {
		guardcron.SetClock(admin, behind)
		require.NoError(t, admin.Trigger(t.Context(), "nightly", alice))
		receive(t, runs, "a run")
		// a trigger during a run would not lead to another one
		require.Eventually(t, func() bool {
			held, _ := g.Adapter().Held(0, 1)
			return len(held) == 0
		}, procSoon, time.Millisecond, "the run has ended")
	}
	guardcron.SetClock(admin, -time.Hour)
	require.ErrorContains(t, admin.Trigger(t.Context(), "nightly", alice), "clocks is wrong")
}

// A fleet is processes that share a store, with a job that is never due.
type fleet struct {
	looks  *guard.Guard
	t      *testing.T
	server *redistest.Server
	admin  *guardcron.Control
	during func() // what the job does, if it is not nil
	ran    atomic.Int32
}

// A ship is one of them.
type ship struct {
	cron *cron.Cron
	jobs *guardcron.Jobs
	end  func()
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, server: redistest.Start(t)}
	var err error
	f.looks = f.guard()
	f.admin, err = guardcron.NewControl(f.looks)
	require.NoError(t, err)
	return f
}

func (f *fleet) guard() *guard.Guard {
	f.t.Helper()
	g, err := guard.New(single.New(f.server.Client(f.t)), guard.WithNamespace("test"))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, g.Close(context.Background())) })
	return g
}

// start starts a process whose Cron runs.
func (f *fleet) start(opts ...guardcron.Option) *ship {
	f.t.Helper()
	s := &ship{cron: cron.New(cron.WithChain(cron.Recover(cron.DiscardLogger)))}
	var err error
	s.jobs, err = guardcron.New(f.guard(), s.cron, opts...)
	require.NoError(f.t, err)
	_, err = s.jobs.AddFunc("job", "0 3 29 2 *", func(context.Context) error {
		f.ran.Add(1)
		if f.during != nil {
			f.during()
		}
		return nil
	})
	require.NoError(f.t, err)
	s.cron.Start()
	s.end = sync.OnceFunc(func() {
		<-s.cron.Stop().Done()
		require.NoError(f.t, s.jobs.Close(context.Background()))
	})
	f.t.Cleanup(s.end)
	require.Eventually(f.t, func() bool { // it has subscribed, or does in a moment
		all, err := f.admin.List(context.Background())
		return err == nil && len(all) == 1
	}, procSoon, time.Millisecond)
	return s
}

// trigger triggers the job, does something, and requires one more run.
func (f *fleet) trigger(then func()) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { // the run before has freed the job
		return f.looks.Adapter().Look(context.Background(), "cron:job") == nil
	}, procSoon, time.Millisecond)
	before := f.ran.Load()
	require.NoError(f.t, f.admin.Trigger(context.Background(), "job", alice))
	then()
	require.Eventually(f.t, func() bool { return f.ran.Load() > before }, procSoon, time.Millisecond, "it is lost")
	require.Eventually(f.t, func() bool {
		records, err := f.admin.Records(context.Background(), "job", 100)
		return err == nil && len(records) == int(f.ran.Load()) && records[0].Result == guardcron.Ran
	}, procSoon, time.Millisecond)
	require.Equal(f.t, before+1, f.ran.Load(), "it is run again")
}

func nothing() {}

// The process that receives a trigger first is about to end: its Cron is stopped, and Close waits.
func TestTrigger_isNotLostIfACronIsStopped(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]func(f *fleet){
		"one of two": func(f *fleet) {
			f.start().cron.Stop()
			f.start()
			for range 40 {
				f.trigger(nothing)
			}
		},
		"all but the last of four": func(f *fleet) {
			for range 3 {
				f.start(guardcron.WithOverlap(guardcron.Allow)).cron.Stop()
			}
			f.start(guardcron.WithOverlap(guardcron.Allow))
			for range 20 {
				f.trigger(nothing)
			}
		},
		"all, until one is started again": func(f *fleet) {
			a, b := f.start(), f.start()
			for range 20 {
				<-a.cron.Stop().Done() // or it may not be started again
				<-b.cron.Stop().Done()
				f.trigger(a.cron.Start)
				f.trigger(b.cron.Start)
			}
		},
		"all, until a new one starts": func(f *fleet) {
			f.start().cron.Stop()
			f.trigger(func() { f.start() })
		},
		"while they are stopped": func(f *fleet) {
			f.start()
			for range 20 {
				other := f.start()
				f.trigger(func() { other.cron.Stop() })
			}
		},
		"while they are closed": func(f *fleet) {
			f.start()
			for range 20 {
				other := f.start()
				f.trigger(other.end)
			}
		},
		"while the job is removed from them": func(f *fleet) {
			f.start()
			for range 20 {
				other := f.start()
				f.trigger(func() { require.NoError(f.t, other.jobs.Remove("job")) })
			}
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			test(newFleet(t))
		})
	}
}

// A process that waits for a trigger, which another one runs, can be closed at once.
func TestTrigger_thatRunsElsewhereDoesNotHoldUpClose(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	runs, over := make(chan struct{}), make(chan struct{})
	f.during = func() { close(runs); <-over }
	a := f.start()
	ends := sync.OnceFunc(func() { close(over) })
	t.Cleanup(ends)
	require.NoError(t, f.admin.Trigger(t.Context(), "job", alice))
	receive(t, runs, "the run")
	waits := make(chan struct{}, 1)
	b := f.start(guardcron.WithLease(guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waits <- struct{}{} }})))
	receive(t, waits, "a wait")
	begun := time.Now()
	b.end()
	require.Less(t, time.Since(begun), 30*time.Second, "as long as it would wait")
	ends()
	a.end()
	require.Equal(t, int32(1), f.ran.Load(), "it was run once, by the first")
}

// A process is killed in a run by hand. Another one runs it again.
func TestTrigger_anotherRunsThatOfOneThatWasKilled(t *testing.T) {
	t.Parallel()
	order, log := procPlace(t, 1, 2*time.Second, procJob{Name: "job", Spec: "0 0 3 29 2 *", Takes: 5 * time.Second})
	processes := map[string]*procChild{"a": startProc(t, order.as("a", 0)), "b": startProc(t, order.as("b", 0))}
	w, err := newProcWorker(order.as("admin", 0))
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close(procSoon)) }()
	require.Eventually(t, func() bool { return w.jobs.Trigger(context.Background(), "job", alice) == nil }, procSoon, 10*time.Millisecond)
	begun := log.await(t, "the run", func(e procEvent) bool { return e.Kind == "begin" })
	require.NoError(t, processes[begun.Who].Signal(syscall.SIGUSR1))
	log.await(t, "its death", func(e procEvent) bool { return e.Kind == "dies" })
	<-processes[begun.Who].Done()
	again := log.await(t, "the run again", func(e procEvent) bool { return e.Kind == "begin" && e.Who != begun.Who })
	require.Greater(t, again.Fence, begun.Fence)
	log.await(t, "its end", func(e procEvent) bool { return e.Kind == "end" && e.Who == again.Who })
	processes[again.Who].stop(t)
	require.Len(t, log.read(t).of("job", 0, "end"), 1)
}
