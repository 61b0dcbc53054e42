package guardscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// asynq waits for its jobs. Those that were ended from within must count as ended.
func TestScheduler_shutdownReturnsAlthoughItsJobsDoNot(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	r := site.scheduler(asynq.SchedulerOpts{})
	_, err := r.Register("@every 1s", asynq.NewTask("report", nil))
	require.NoError(t, err)
	require.NoError(t, r.Start())
	require.NoError(t, r.Ping())
	site.enqueued("default", 1)
	requireSoon(t, r.Shutdown)
	requireSoon(t, r.Shutdown)
	require.Error(t, r.Start())
	require.Error(t, r.Run())
}

func TestScheduler_shutdownLeavesTicksOfOthersAtOnce(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	began, finish := make(chan struct{}, 100), make(chan struct{})
	holder := site.scheduler(asynq.SchedulerOpts{PreEnqueueFunc: func(*asynq.Task, []asynq.Option) { began <- struct{}{}; <-finish }})
	waits := make(chan struct{}, 100)
	hook := guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waits <- struct{}{} }}
	waiter := site.scheduler(asynq.SchedulerOpts{}, guardscheduler.WithLease(guard.WithHook(hook)))
	_, err := holder.Register("@every 1s", asynq.NewTask("report", nil))
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	done := sync.OnceFunc(func() { close(finish) })
	t.Cleanup(done)
	<-began // It holds a tick. The other one will wait for a later tick that it holds.
	_, err = waiter.Register("@every 1s", asynq.NewTask("report", nil))
	require.NoError(t, err)
	require.NoError(t, waiter.Start())
	select {
	case <-waits:
	case <-time.After(schedulerSoon):
		require.FailNow(t, "it does not wait")
	}
	requireSoon(t, waiter.Shutdown)

	// What a replica enqueues when it is shut down is finished.
	before := len(site.pending("default"))
	go func() {
		// so that Shutdown has begun, on most machines; it is no matter for the outcome
		time.Sleep(200 * time.Millisecond)
		done()
	}()
	requireSoon(t, holder.Shutdown)
	require.Greater(t, len(site.pending("default")), before)
}

// A droppedRelease is a store to which no release gets through, as if each process were killed
// right after it has enqueued.
type droppedRelease struct{ driver.Wrapper }

func (l droppedRelease) Release(context.Context, driver.Claim, driver.After) (bool, error) {
	return false, errors.New("the connection is gone")
}

// The documentation of Scheduler promises this.
func TestScheduler_retentionKeepsOutASecondTaskIfTheMarkerIsMissing(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	var mu sync.Mutex
	runs := map[time.Time]int{}
	consumer := asynq.NewServer(site.conn(), asynq.Config{LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond})
	require.NoError(t, consumer.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		runs[tickOf(t, id)]++
		return nil
	})))
	t.Cleanup(consumer.Shutdown)
	g, err := guard.New(droppedRelease{driver.Wrapper{Locker: single.New(site.server.Client(t))}}, guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	var dies, other hookLog
	opts := dies.opts()
	first, err := guardscheduler.New(g, site.conn(), &opts, guardscheduler.WithLease(guard.WithTTL(time.Second)))
	require.NoError(t, err)
	t.Cleanup(first.Shutdown)
	second := site.scheduler(other.opts(), guardscheduler.WithLease(guard.WithTTL(time.Second)))
	for _, r := range []*guardscheduler.Scheduler{first, second} {
		_, err := r.Register("@every 1s", asynq.NewTask("report", nil), asynq.Retention(time.Minute))
		require.NoError(t, err)
		require.NoError(t, r.Start())
	}
	// the second one has found a task that was there, which it does not report
	require.Eventually(t, func() bool {
		lines, infos, _ := other.all()
		return len(lines)-len(infos) > len(infos)+2
	}, schedulerSoon, 20*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for tick, n := range runs {
		require.Equal(t, 1, n, tick)
	}
	_, _, errs := other.all()
	require.Empty(t, errs)
}

func TestScheduler_reportsThatTheQueuesAreAwayAndRecovers(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	site.queues = redistest.Start(t)
	site.in = inspect(t, site.queues.Addr())
	var log hookLog
	r := site.scheduler(log.opts(), guardscheduler.WithLease(guard.WithTTL(500*time.Millisecond)))
	task := asynq.NewTask("report", nil)
	_, err := r.Register("@every 1s", task)
	require.NoError(t, err)
	site.queues.Kill()
	require.NoError(t, r.Start())
	require.ErrorContains(t, log.failed(t), `guardscheduler: enqueue "report@`)
	require.Eventually(t, func() bool {
		lines, _, _ := log.all()
		i := slices.Index(lines, "post false")
		return i >= 0 && slices.Contains(lines[i:], fmt.Sprintf("error %p [] true", task))
	}, schedulerSoon, 20*time.Millisecond)
	site.queues.Restart()
	site.enqueued("default", 2)
	r.Shutdown()
}

func TestScheduler_triesAgainBeforeItReports(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	site.queues = redistest.Start(t)
	site.in = inspect(t, site.queues.Addr())
	var log hookLog
	opts := log.opts()
	began := make(chan struct{}, 100)
	opts.PreEnqueueFunc = func(*asynq.Task, []asynq.Option) { began <- struct{}{} }
	r := site.scheduler(opts, guardscheduler.WithLease(guard.WithTTL(10*time.Second)))
	_, err := r.Register("@every 1s", asynq.NewTask("report", nil))
	require.NoError(t, err)
	site.queues.Kill()
	first := nextSecond()
	require.NoError(t, r.Start())
	<-began
	// its first try fails in this time: go-redis itself tries for less than that if no server
	// listens
	time.Sleep(2 * time.Second)
	site.queues.Restart()
	site.in = inspect(t, site.queues.Addr())
	requireTicks(t, first.Add(time.Second), 3, time.Second, func() map[time.Time]int { return pendingTicks(t, site.in, "default", "report") })
	_, _, errs := log.all()
	require.Empty(t, errs)
	r.Shutdown()
}

func TestScheduler_enqueuesNothingUnguardedIfTheLeasesAreAway(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	site.queues = redistest.Start(t)
	site.in = inspect(t, site.queues.Addr())
	var log hookLog
	r := site.scheduler(log.opts(), guardscheduler.WithLease(guard.WithTTL(500*time.Millisecond)))
	_, err := r.Register("@every 1s", asynq.NewTask("report", nil))
	require.NoError(t, err)
	site.server.Kill()
	require.NoError(t, r.Start())
	require.ErrorIs(t, log.failed(t), guard.ErrStore)
	require.Empty(t, site.pending("default"))
	_, infos, _ := log.all()
	require.Empty(t, infos)
	site.server.Restart()
	site.enqueued("default", 1)
	r.Shutdown()
}
