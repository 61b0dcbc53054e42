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
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

// A schedulerSite is a Redis for the queues and the leases.
type schedulerSite struct {
	t      *testing.T
	server *redistest.Server // of the leases
	queues *redistest.Server
	in     *asynq.Inspector
}

func newSchedulerSite(t *testing.T) *schedulerSite {
	server := redistest.Start(t)
	return &schedulerSite{t: t, server: server, queues: server, in: inspect(t, server.Addr())}
}

func (s *schedulerSite) conn() asynq.RedisConnOpt { return asynq.RedisClientOpt{Addr: s.queues.Addr()} }

// guard returns a Guard, as each process has one.
func (s *schedulerSite) guard() *guard.Guard {
	g, err := guard.New(single.New(s.server.Client(s.t)), guard.WithNamespace("test"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// scheduler returns a replica, which is shut down when the test ends.
func (s *schedulerSite) scheduler(opts asynq.SchedulerOpts, more ...guardscheduler.Option) *guardscheduler.Scheduler {
	opts.LogLevel = asynq.FatalLevel
	r, err := guardscheduler.New(s.guard(), s.conn(), &opts, more...)
	require.NoError(s.t, err)
	s.t.Cleanup(r.Shutdown)
	return r
}

// pending returns the tasks of a queue.
func (s *schedulerSite) pending(queue string) []*asynq.TaskInfo {
	tasks, err := s.in.ListPendingTasks(queue, asynq.PageSize(10_000))
	if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
		require.NoError(s.t, err)
	}
	return tasks
}

// enqueued waits until a queue has n tasks at the least.
func (s *schedulerSite) enqueued(queue string, n int) []*asynq.TaskInfo {
	s.t.Helper()
	var tasks []*asynq.TaskInfo
	require.Eventually(s.t, func() bool { tasks = s.pending(queue); return len(tasks) >= n }, schedulerSoon, 20*time.Millisecond)
	return tasks
}

// A hookLog keeps the calls of a replica's hooks.
type hookLog struct {
	mu    sync.Mutex
	lines []string
	infos []*asynq.TaskInfo
	errs  []error
}

func (l *hookLog) opts() asynq.SchedulerOpts {
	return asynq.SchedulerOpts{
		PreEnqueueFunc: func(task *asynq.Task, opts []asynq.Option) { l.add("pre %p %v", task, opts) },
		PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
			l.add("post %v", err == nil)
			l.mu.Lock()
			defer l.mu.Unlock()
			if err == nil {
				l.infos = append(l.infos, info)
			} else {
				l.errs = append(l.errs, err)
			}
		},
		//nolint:staticcheck // deprecated, and in use
		EnqueueErrorHandler: func(task *asynq.Task, opts []asynq.Option, err error) {
			l.add("error %p %v %v", task, opts, err != nil)
		},
	}
}

func (l *hookLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *hookLog) all() (lines []string, infos []*asynq.TaskInfo, errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines), slices.Clone(l.infos), slices.Clone(l.errs)
}

// failed waits for an error.
func (l *hookLog) failed(t *testing.T) error {
	t.Helper()
	var errs []error
	require.Eventually(t, func() bool { _, _, errs = l.all(); return len(errs) > 0 }, schedulerSoon, 20*time.Millisecond)
	return errs[0]
}

// requireSoon fails if f does not return soon: long before a tick would be given up, which is
// after 15 s.
func requireSoon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	begin := time.Now()
	go func() { defer close(done); f() }()
	select {
	case <-done:
		require.Less(t, time.Since(begin), 8*time.Second)
	case <-time.After(schedulerSoon):
		require.FailNow(t, "it has not returned")
	}
}
