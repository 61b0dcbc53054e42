package guardscheduler_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// An observer and the hooks of the Guard learn of ticks that were enqueued and of those that were
// missed. A panic of an observer is ignored.
func TestObserver_learnsOfTicksThatWereMissed(t *testing.T) {
	t.Parallel()
	site, store := newSchedulerSite(t), memory.New()
	var mu sync.Mutex
	var outcomes []guardscheduler.Outcome
	hooked := map[string]int{} // by result and reason
	hook := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		hooked[o.Adapter+" "+o.Name+" "+o.Result+" "+o.Skipped]++
	}}
	observe := func(o guardscheduler.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		outcomes = append(outcomes, o)
		panic("observers decide nothing")
	}
	found := func(result guardscheduler.Result) (all []guardscheduler.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range outcomes {
			if o.Result == result {
				all = append(all, o)
			}
		}
		return all
	}
	start := func() *guardscheduler.Scheduler {
		g, err := guard.New(store, guard.WithNamespace("test"), guard.WithHook(hook))
		require.NoError(t, err)
		t.Cleanup(func() { _ = g.Close(context.Background()) })
		s, err := guardscheduler.New(g, site.conn(), &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel},
			guardscheduler.WithStartDeadline(time.Second), guardscheduler.WithObserver(observe))
		require.NoError(t, err)
		_, err = s.Register("@every 1s", asynq.NewTask("report", nil))
		require.NoError(t, err)
		require.NoError(t, s.Start())
		return s
	}
	s := start()
	require.Eventually(t, func() bool { return len(found(guardscheduler.Enqueued)) > 0 }, schedulerSoon, 10*time.Millisecond)
	s.Shutdown()
	time.Sleep(3500 * time.Millisecond) // no process is up for longer than the start deadline
	s = start()
	require.Eventually(t, func() bool { return len(found(guardscheduler.Missed)) > 0 }, schedulerSoon, 10*time.Millisecond)
	s.Shutdown()

	ran, missed := found(guardscheduler.Enqueued)[0], found(guardscheduler.Missed)[0]
	require.NoError(t, ran.Err)
	require.Equal(t, 1, ran.Ticks)
	require.Equal(t, "report", ran.Type)
	var reason *guardscheduler.MissedError
	require.ErrorAs(t, missed.Err, &reason)
	require.Equal(t, "@every 1s", missed.Spec)
	require.Positive(t, missed.Ticks)
	require.True(t, missed.Tick.After(ran.Tick))
	mu.Lock()
	defer mu.Unlock()
	require.Positive(t, hooked["asynq-scheduler enqueue report enqueued "])
	require.Positive(t, hooked["asynq-scheduler enqueue report missed missed"])
}

func TestWithObserver_refusesNil(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	_, err := guardscheduler.New(site.guard(), site.conn(), nil, guardscheduler.WithObserver(nil))
	var refused *guard.SettingError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithObserver", refused.Setting)
}
