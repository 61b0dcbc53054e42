package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

var (
	_ gocron.Locker  = (*guardgocron.Locker[gocron.Lock])(nil)
	_ gocron.Elector = (*guardgocron.Elector)(nil)
)

// A gocronRun is a run of the job.
type gocronRun struct {
	scheduler int
	at        time.Time
}

// gocronSite is three schedulers over one store, which start the same job every two seconds.
type gocronSite struct {
	guards     []*guard.Guard
	schedulers []gocron.Scheduler

	mu   sync.Mutex
	runs []gocronRun
}

func newGocronSite(t *testing.T, option func(t *testing.T, g *guard.Guard) gocron.SchedulerOption) *gocronSite {
	t.Helper()
	store := memory.New()
	site := &gocronSite{}
	for i := range 3 {
		g, err := guard.New(store, guard.WithNamespace("test"), guard.WithTTL(2*time.Second))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		s, err := gocron.NewScheduler(option(t, g))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Shutdown() })
		_, err = s.NewJob(gocron.CronJob("*/2 * * * * *", true), gocron.NewTask(func() {
			site.mu.Lock()
			defer site.mu.Unlock()
			site.runs = append(site.runs, gocronRun{i, time.Now()})
		}), gocron.WithName("report"))
		require.NoError(t, err)
		site.guards, site.schedulers = append(site.guards, g), append(site.schedulers, s)
	}
	for _, s := range site.schedulers {
		s.Start()
	}
	return site
}

// wait waits until the job was run n times, and returns the runs.
func (s *gocronSite) wait(t *testing.T, n int) []gocronRun {
	t.Helper()
	var runs []gocronRun
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		runs = append([]gocronRun(nil), s.runs...)
		return len(runs) >= n
	}, time.Minute, 10*time.Millisecond)
	return runs
}

// A tick is run by one of three schedulers. The minimum hold is shorter than the time between
// ticks, and longer than a scheduler is late.
func TestGocronLocker_oneSchedulerRunsATick(t *testing.T) {
	t.Parallel()
	site := newGocronSite(t, func(t *testing.T, g *guard.Guard) gocron.SchedulerOption {
		locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithMinHold(1200*time.Millisecond))
		require.NoError(t, err)
		return gocron.WithDistributedLocker(locker)
	})
	runs := site.wait(t, 3)
	for i := range runs[1:] {
		require.Greater(t, runs[i+1].at.Sub(runs[i].at), 1100*time.Millisecond, "two runs in one tick")
	}
}

// The scheduler of the leader runs all ticks, and another one when it has resigned, or lost its
// lease.
func TestGocronElector_oneSchedulerRunsAll(t *testing.T) {
	t.Parallel()
	var electors []*guardgocron.Elector
	site := newGocronSite(t, func(t *testing.T, g *guard.Guard) gocron.SchedulerOption {
		e, err := guardgocron.NewElector(g, "reports")
		require.NoError(t, err)
		t.Cleanup(func() { _ = e.Close(context.Background()) })
		electors = append(electors, e)
		return gocron.WithDistributedElector(e)
	})
	runs := site.wait(t, 3)
	leader := runs[0].scheduler
	for _, r := range runs {
		require.Equal(t, leader, r.scheduler)
	}
	require.NoError(t, electors[leader].Close(t.Context()))
	resigned := time.Now()
	site.wait(t, len(runs)+3)
	site.mu.Lock()
	defer site.mu.Unlock()
	next := -1
	for _, r := range site.runs {
		if r.at.After(resigned.Add(2 * time.Second)) {
			require.NotEqual(t, leader, r.scheduler)
			if next < 0 {
				next = r.scheduler
			}
			require.Equal(t, next, r.scheduler, "one leader")
		}
	}
}

// Jobs that a loop makes run each at each tick if they have names. Without names, they share a
// lock, and the Locker says so once.
func TestGocronLocker_jobsThatALoopMakes(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		name   func(tenant string) []gocron.JobOption
		warned int
	}{
		"with names":    {func(tenant string) []gocron.JobOption { return []gocron.JobOption{gocron.WithName("report-" + tenant)} }, 0},
		"without names": {func(string) []gocron.JobOption { return nil }, 1},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var warned []error
			runs := map[string]int{}
			g, err := guard.New(memory.New(), guard.WithNamespace("test"), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				warned = append(warned, o.Refused)
			}}))
			require.NoError(t, err)
			locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithMinHold(500*time.Millisecond))
			require.NoError(t, err)
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
			require.NoError(t, err)
			for _, tenant := range []string{"a", "b", "c"} {
				_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
					mu.Lock()
					defer mu.Unlock()
					runs[tenant]++
				}), c.name(tenant)...)
				require.NoError(t, err)
			}
			s.Start()
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return runs["a"]+runs["b"]+runs["c"] >= 3
			}, time.Minute, 10*time.Millisecond)
			time.Sleep(1500 * time.Millisecond) // more ticks
			require.NoError(t, s.Shutdown())
			require.NoError(t, g.Close(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, warned, c.warned)
			if c.warned == 0 {
				require.Len(t, runs, 3)
				return
			}
			require.ErrorContains(t, warned[0], "two jobs of this process have this name")
		})
	}
}
