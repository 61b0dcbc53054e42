package guardscheduler_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

func TestScheduler_enqueuesATickOnceForAllReplicas(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	task := asynq.NewTask("report", nil)
	opts := make([]asynq.Option, 1, 4)
	opts[0] = asynq.MaxRetry(3)
	logs := make([]hookLog, 3)
	var replicas []*guardscheduler.Scheduler
	for i := range logs {
		r := site.scheduler(logs[i].opts())
		_, err := r.Register("@every 1s", task, opts...)
		require.NoError(t, err)
		require.NoError(t, r.Start())
		replicas = append(replicas, r)
	}
	site.enqueued("default", 4)
	for _, r := range replicas {
		r.Shutdown()
	}
	var ids []string
	for i := range logs {
		lines, infos, errs := logs[i].all()
		require.Empty(t, errs)
		for _, info := range infos {
			ids = append(ids, info.ID)
			require.Equal(t, 3, info.MaxRetry)
		}
		// asynq's order and arguments if this replica enqueued, and no call otherwise
		var want []string
		for range infos {
			want = append(want, fmt.Sprintf("pre %p %v", task, opts), "post true")
		}
		require.Equal(t, want, lines)
	}
	slices.Sort(ids)
	require.Len(t, slices.Compact(slices.Clone(ids)), len(ids), "each tick was enqueued by one replica")
	var have []string
	for _, info := range site.pending("default") {
		have = append(have, info.ID)
	}
	slices.Sort(have)
	require.Equal(t, have, ids)
}

func TestScheduler_passesOnWhatBelongsToATask(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	r := site.scheduler(asynq.SchedulerOpts{HeartbeatInterval: 50 * time.Millisecond})
	task := asynq.NewTaskWithHeaders("mail", []byte("7"), map[string]string{"traceparent": "00-1"}, asynq.MaxRetry(2), asynq.Timeout(time.Minute))
	_, err := r.Register("@every 1s", task, asynq.Queue("low"), asynq.Retention(time.Hour), asynq.TaskID("mine"), asynq.MaxRetry(4))
	require.NoError(t, err)
	require.NoError(t, r.Start())
	info := site.enqueued("low", 1)[0]
	require.Equal(t, "mail", info.Type)
	require.Equal(t, []byte("7"), info.Payload)
	require.Equal(t, map[string]string{"traceparent": "00-1"}, info.Headers)
	require.Equal(t, time.Minute, info.Timeout)
	require.Equal(t, time.Hour, info.Retention)
	require.Equal(t, 4, info.MaxRetry)
	id, _ := guardscheduler.TickNames(task, tickOf(t, info.ID))
	require.Equal(t, id, info.ID, "the ID is the tick's, even if the caller has set one")

	var shown []*asynq.SchedulerEntry
	require.Eventually(t, func() bool {
		shown, err = site.in.SchedulerEntries()
		return err == nil && len(shown) == 1
	}, schedulerSoon, 20*time.Millisecond)
	require.Equal(t, "mail", shown[0].Task.Type())
	require.Contains(t, fmt.Sprint(shown[0].Opts), `Queue("low")`)
}

func TestScheduler_doesNotMixUpTasksWithOptionsInCommon(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	r := site.scheduler(asynq.SchedulerOpts{})
	roomy := make([]asynq.Option, 0, 16)
	roomy = append(roomy, asynq.MaxRetry(1))
	const n = 20
	for i := range n { // asynq appends the options of a call to those of the task, in place
		_, err := r.Register("@every 1s", asynq.NewTask(fmt.Sprint("task-", i), nil, roomy...), roomy...)
		require.NoError(t, err)
	}
	require.NoError(t, r.Start())
	tasks := site.enqueued("default", 2*n)
	first := map[string]bool{}
	for _, info := range tasks {
		id, _ := guardscheduler.TickNames(asynq.NewTask(info.Type, nil), tickOf(t, info.ID))
		require.Equal(t, id, info.ID)
		first[info.Type] = true
	}
	require.Len(t, first, n)
}

func TestScheduler_keepsTheOptionsThatItWasGiven(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	r := site.scheduler(asynq.SchedulerOpts{})
	opts := []asynq.Option{asynq.Queue("a")}
	_, err := r.Register("@every 1s", asynq.NewTask("a", nil), opts...)
	require.NoError(t, err)
	opts[0] = asynq.Queue("b")
	_, err = r.Register("@every 1s", asynq.NewTask("b", nil), opts...)
	require.NoError(t, err)
	require.NoError(t, r.Start())
	require.Equal(t, "a", site.enqueued("a", 1)[0].Type)
	require.Equal(t, "b", site.enqueued("b", 1)[0].Type)
}

func TestScheduler_leavesOutWhatIsNotUniqueOnce(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	logs := make([]hookLog, 2)
	for i := range logs {
		r := site.scheduler(logs[i].opts())
		_, err := r.Register("@every 1s", asynq.NewTask("report", nil), asynq.Unique(time.Hour))
		require.NoError(t, err)
		require.NoError(t, r.Start())
	}
	require.Eventually(t, func() bool {
		_, _, a := logs[0].all()
		_, _, b := logs[1].all()
		return len(a)+len(b) >= 3
	}, schedulerSoon, 20*time.Millisecond)
	refused := map[string]bool{}
	for i := range logs {
		_, _, errs := logs[i].all()
		for _, err := range errs {
			require.ErrorIs(t, err, asynq.ErrDuplicateTask)
			require.False(t, refused[err.Error()], "one replica reports a tick: %v", err)
			refused[err.Error()] = true
		}
	}
	require.Len(t, site.pending("default"), 1)
}

func TestScheduler_entriesOfOneTypeAndPayloadNeedNames(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	r := site.scheduler(asynq.SchedulerOpts{})
	task := asynq.NewTask("bill", []byte("7"))
	_, err := r.Register("@every 1s", task, asynq.Queue("eu"), asynq.MaxRetry(1))
	require.NoError(t, err)
	_, err = r.Register("@every 2s", task, asynq.MaxRetry(1), asynq.Queue("eu"))
	require.NoError(t, err, "the same options, in another order: of ticks in common there is one")
	_, err = r.Register("@hourly", task, asynq.Queue("us"))
	var setting *guard.SettingError
	require.ErrorAs(t, err, &setting)
	require.Contains(t, setting.Reason, `of ticks that "@hourly" and "@every `)
	_, err = r.Register("@hourly", asynq.NewTaskWithHeaders("bill", []byte("7"), map[string]string{"a": "b"}), asynq.Queue("eu"), asynq.MaxRetry(1))
	require.ErrorAs(t, err, &setting)
	id, err := r.Register("@every 1s", task, asynq.Queue("us"), guardscheduler.TickName("us"))
	require.NoError(t, err)
	require.NoError(t, r.Start())
	site.enqueued("eu", 2)
	site.enqueued("us", 2)
	require.NoError(t, r.Unregister(id))
	_, err = r.Register("@hourly", task, asynq.Queue("asia"), guardscheduler.TickName("us"))
	require.NoError(t, err, "the name is free again")
	require.Error(t, r.Unregister(id))
	for tick, n := range pendingTicks(t, site.in, "eu", "bill") {
		require.Equal(t, 1, n, tick)
	}
}

func TestScheduler_entriesComeAndGoWhileItRuns(t *testing.T) {
	t.Parallel()
	site := newSchedulerSite(t)
	r := site.scheduler(asynq.SchedulerOpts{})
	require.NoError(t, r.Start())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id, err := r.Register("@every 1s", asynq.NewTask(fmt.Sprint("gone-", i), nil), asynq.Queue("gone"))
			assert.NoError(t, err)
			_, err = r.Register("@every 1s", asynq.NewTask(fmt.Sprint("stays-", i), nil))
			assert.NoError(t, err)
			assert.NoError(t, r.Unregister(id))
		})
	}
	wg.Wait()
	removed := time.Now()
	site.enqueued("default", 60) // three ticks or more
	for _, info := range site.pending("gone") {
		require.False(t, tickOf(t, info.ID).After(removed), info.ID)
	}
}
