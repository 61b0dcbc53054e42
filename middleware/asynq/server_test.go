package guardasynq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

const (
	// aqSoon is how long what should happen soon may take on a loaded machine: asynq takes a minute
	// to recover a task that a server has lost.
	aqSoon = 2 * time.Minute
	// aqPoll is how often a test looks whether it has happened.
	aqPoll = 10 * time.Millisecond
	// aqQuiet is how long a test watches that nothing happens.
	aqQuiet = 300 * time.Millisecond
	// aqQueue is asynq's own name for the queue of tasks that name none.
	aqQueue = "default"
)

// aqQueues are asynq's queues, as clients see them.
type aqQueues struct {
	client    *asynq.Client
	inspector *asynq.Inspector
}

// An aqSite is a Redis with all that works on it: asynq's client and inspector, and a Guard whose
// leases are in the same Redis.
type aqSite struct {
	*redistest.Server
	aqQueues
	rdb      *redis.Client
	guard    *guard.Guard
	outcomes aqLog
}

func newAqSite(t *testing.T) *aqSite {
	t.Helper()
	server := redistest.Start(t)
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize = 50 })
	s := &aqSite{Server: server, rdb: rdb, aqQueues: aqQueues{asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)}}
	s.guard = s.newGuard(t)
	return s
}

// newGuard returns another Guard, as another process has one.
func (s *aqSite) newGuard(t *testing.T, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(single.New(s.rdb), append([]guard.Option{guard.WithNamespace("test")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// middleware returns one whose outcomes go to s.outcomes.
func (s *aqSite) middleware(t *testing.T, key guardasynq.KeyFunc, opts ...guardasynq.Option) asynq.MiddlewareFunc {
	t.Helper()
	return s.middlewareOf(t, s.guard, key, opts...)
}

func (s *aqSite) middlewareOf(t *testing.T, g *guard.Guard, key guardasynq.KeyFunc, opts ...guardasynq.Option) asynq.MiddlewareFunc {
	t.Helper()
	all := []guardasynq.Option{
		guardasynq.WithClient(s.client, s.inspector), aqObserve(s.outcomes.add),
	}
	m, err := guardasynq.New(g, key, append(all, opts...)...)
	require.NoError(t, err)
	return m
}

// aqConfig is a Config that went through Configure.
func aqConfig(change ...func(*asynq.Config)) asynq.Config {
	config := aqPlainConfig(change...)
	config = guardasynq.Configure(config)
	return config
}

// aqPlainConfig is a Config that did not.
func aqPlainConfig(change ...func(*asynq.Config)) asynq.Config {
	config := asynq.Config{
		Concurrency: 10, TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond,
		LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
	}
	for _, c := range change {
		c(&config)
	}
	return config
}

// serve runs a server until the test ends.
func (s *aqSite) serve(t *testing.T, config asynq.Config, handler asynq.Handler) {
	t.Helper()
	server := asynq.NewServerFromRedisClient(s.rdb, config)
	require.NoError(t, server.Start(handler))
	t.Cleanup(server.Shutdown)
}

func (s *aqSite) enqueue(t *testing.T, typename, payload string, opts ...asynq.Option) *asynq.TaskInfo {
	t.Helper()
	return s.enqueueTask(t, asynq.NewTask(typename, []byte(payload)), opts...)
}

func (s *aqSite) enqueueTask(t *testing.T, task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	t.Helper()
	info, err := s.client.EnqueueContext(t.Context(), task, opts...)
	require.NoError(t, err)
	return info
}

// info returns asynq's information on a task, or nil if there is none of that ID.
func (s aqQueues) info(t *testing.T, id string) *asynq.TaskInfo {
	t.Helper()
	info, err := s.inspector.GetTaskInfo(aqQueue, id)
	if !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
		require.NoError(t, err)
	}
	return info // nil with an error
}

// awaitState waits until a task is in a state, and returns it.
func (s aqQueues) awaitState(t *testing.T, id string, state asynq.TaskState) *asynq.TaskInfo {
	t.Helper()
	var info *asynq.TaskInfo
	require.Eventually(t, func() bool {
		found, err := s.inspector.GetTaskInfo(aqQueue, id)
		info = found
		return err == nil && info.State == state
	}, aqSoon, aqPoll, "task %q never was %v", id, state)
	return info
}

func (s aqQueues) awaitGone(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.info(t, id) == nil }, aqSoon, aqPoll, "task %q is still there", id)
}

// awaitEmpty waits until asynq has nothing to do any more, and returns how many tasks are archived.
func (s aqQueues) awaitEmpty(t *testing.T) (archived int) {
	t.Helper()
	lifeUntil(t, "the queue is empty", func() bool {
		q, err := s.inspector.GetQueueInfo(aqQueue)
		require.NoError(t, err)
		archived = q.Archived
		return q.Pending+q.Active+q.Scheduled+q.Retry+q.Aggregating == 0
	})
	return archived
}

// An aqLog is what hooks have received.
type aqLog struct {
	mu  sync.Mutex
	all []aqOutcome
}

func (l *aqLog) add(_ context.Context, o aqOutcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, o)
}

// of returns the outcomes with the result.
func (l *aqLog) of(r string) (all []aqOutcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.all {
		if o.Result == r {
			all = append(all, o)
		}
	}
	return all
}

// await waits until there are n outcomes with the result, and returns them.
func (l *aqLog) await(t *testing.T, r string, n int) []aqOutcome {
	t.Helper()
	require.Eventually(t, func() bool { return len(l.of(r)) >= n }, aqSoon, aqPoll, "there never were %d outcomes %q", n, r)
	return l.of(r)
}

// An aqRun is a call of an aqWork. It lasts until the test says how it ends.
type aqRun struct {
	ctx        context.Context
	task       *asynq.Task
	id, taskID string
	payload    string
	begun      time.Time
	end        chan error
}

// returns ends the run.
func (r *aqRun) returns(err error) { r.end <- err }

// An aqWork is a handler that does what the test says, and notes whether two runs of a key met.
type aqWork struct {
	begun chan *aqRun
	quit  chan struct{}

	mu      sync.Mutex
	running map[string]int
	met     []string
	ran     []string // payloads, in the order in which they began
}

func newAqWork(t *testing.T) *aqWork {
	t.Helper()
	w := &aqWork{begun: make(chan *aqRun, 1000), quit: make(chan struct{}), running: map[string]int{}}
	t.Cleanup(func() {
		w.release()
		require.Empty(t, w.met, "runs of these keys overlapped")
	})
	return w
}

// release ends all runs, also those to come. It comes before the server's shutdown if the server
// was started before.
func (w *aqWork) release() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
}

func (w *aqWork) ProcessTask(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	r := &aqRun{ctx: ctx, task: task, id: id, taskID: guardasynq.TaskID(ctx, task), payload: string(task.Payload()), begun: time.Now(), end: make(chan error, 1)}
	key := task.Type() + ":" + guardasynq.Key(ctx)
	w.mu.Lock()
	if w.running[key]++; w.running[key] > 1 {
		w.met = append(w.met, key)
	}
	w.ran = append(w.ran, r.payload)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[key]--
	}()
	w.begun <- r
	select {
	case err := <-r.end:
		return err
	case <-w.quit:
		return nil
	}
}

// next returns the next run when it has begun.
func (w *aqWork) next(t *testing.T) *aqRun {
	t.Helper()
	select {
	case r := <-w.begun:
		return r
	case <-time.After(aqSoon):
		require.FailNow(t, "no run began")
		return nil
	}
}

// none watches that no run begins.
func (w *aqWork) none(t *testing.T) {
	t.Helper()
	select {
	case r := <-w.begun:
		require.FailNow(t, "a run began", "task %q with payload %q", r.id, r.payload)
	case <-time.After(aqQuiet):
	}
}

// payloads returns what has been run.
func (w *aqWork) payloads() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.ran...)
}

// aqJSON returns a payload with a key and a rest.
func aqJSON(key, rest string) string {
	b, err := json.Marshal(map[string]string{"key": key, "rest": rest})
	if err != nil {
		panic(fmt.Sprint("marshal: ", err))
	}
	return string(b)
}
