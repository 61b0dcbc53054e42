package guardasynq_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
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
	// lifeSoon bounds what should take no time, on a machine that is busy with other work.
	lifeSoon = time.Minute
	lifePoll = 20 * time.Millisecond
	lifeType = "life:work"
)

// A lifeSite is a queue and a store of leases, each with a Redis of its own.
type lifeSite struct {
	aqQueues
	queue, store *redistest.Server
	guard        *guard.Guard
	seen         *aqLog
}

func newLifeSite(t *testing.T) *lifeSite {
	t.Helper()
	s := &lifeSite{queue: redistest.Start(t), store: redistest.Start(t), seen: &aqLog{}}
	s.guard = lifeGuard(t, s.store)
	s.aqQueues = lifeQueue(t, s.queue.Addr())
	return s
}

// lifeGuard returns a Guard that is closed when the test ends, after the servers that are started
// later.
func lifeGuard(t *testing.T, store *redistest.Server) *guard.Guard {
	t.Helper()
	g, err := guard.New(single.New(store.Client(t)), guard.WithNamespace("test"))
	require.NoError(t, err)
	// some tests close it themselves, or have killed its store
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// lifeRedis is how tests reach asynq's Redis: with timeouts that do not make them long.
func lifeRedis(addr string) asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Addr: addr, DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second}
}

func lifeQueue(t *testing.T, addr string) aqQueues {
	t.Helper()
	q := aqQueues{asynq.NewClient(lifeRedis(addr)), asynq.NewInspector(lifeRedis(addr))}
	t.Cleanup(func() {
		_ = q.client.Close()
		_ = q.inspector.Close()
	})
	return q
}

// middleware returns one whose key is the customer in the payload, with a TTL of a minute: what
// should be free at once must not become free by itself.
func (s *lifeSite) middleware(t *testing.T, opts ...guardasynq.Option) asynq.MiddlewareFunc {
	t.Helper()
	m, err := guardasynq.New(s.guard, guardasynq.FromJSON("customer"), append([]guardasynq.Option{
		guardasynq.WithClient(s.client, s.inspector),
		guardasynq.WithLease(guard.WithTTL(time.Minute)),
		guardasynq.WithDelay(200 * time.Millisecond),
		aqObserve(s.seen.add),
	}, opts...)...)
	require.NoError(t, err)
	return m
}

// serve starts an asynq server, which is shut down when the test ends.
func (s *lifeSite) serve(t *testing.T, handler asynq.Handler, change ...func(*asynq.Config)) *asynq.Server {
	t.Helper()
	return s.start(t, handler, append(slices.Clip(change), func(c *asynq.Config) { *c = guardasynq.Configure(*c) })...)
}

// start is serve without Configure.
func (s *lifeSite) start(t *testing.T, handler asynq.Handler, change ...func(*asynq.Config)) *asynq.Server {
	t.Helper()
	config := aqPlainConfig(append([]func(*asynq.Config){func(c *asynq.Config) {
		c.Concurrency, c.DelayedTaskCheckInterval, c.ShutdownTimeout = 5, 100*time.Millisecond, 10*time.Second
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond }
	}}, change...)...)
	server := asynq.NewServer(lifeRedis(s.queue.Addr()), config)
	require.NoError(t, server.Start(handler))
	t.Cleanup(server.Shutdown)
	return server
}

// A lifeTask is the payload of a task.
type lifeTask struct {
	Customer string `json:"customer"`
	Work     int    `json:"work"` // milliseconds
	Kind     string `json:"kind"`
}

func newLifeTask(t *testing.T, task lifeTask) *asynq.Task {
	t.Helper()
	payload, err := json.Marshal(task)
	require.NoError(t, err)
	return asynq.NewTask(lifeType, payload)
}

func lifePayload(task *asynq.Task) (p lifeTask) {
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		panic(err) // we wrote it
	}
	return p
}

func (s *lifeSite) enqueue(t *testing.T, id, customer string, opts ...asynq.Option) {
	t.Helper()
	_, err := s.client.Enqueue(newLifeTask(t, lifeTask{Customer: customer}), append([]asynq.Option{asynq.TaskID(id)}, opts...)...)
	require.NoError(t, err)
}

// lifeHeartbeat is how often a server extends asynq's own leases of the tasks that it works on.
const lifeHeartbeat = 5 * time.Second

// ageLeases has asynq's own leases end a minute ago that no server has extended since the instant,
// which was more than a heartbeat ago. The next server that starts takes their tasks back.
func (s *lifeSite) ageLeases(t *testing.T, since time.Time) {
	t.Helper()
	rdb := s.queue.Client(t)
	last := since.Add(30 * time.Second) // to which a heartbeat extends a lease
	stale, err := rdb.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: lifeLeases, Start: "-inf", Stop: last.Unix(), ByScore: true}).Result()
	require.NoError(t, err)
	for _, task := range stale {
		s.ageLease(t, rdb, task)
	}
}

const lifeLeases = "asynq:{default}:lease"

func (s *lifeSite) ageLease(t *testing.T, rdb *redis.Client, task string) {
	t.Helper()
	ended := redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: task}
	require.NoError(t, rdb.ZAddXX(t.Context(), lifeLeases, ended).Err())
}

// held returns the keys in the store that are leases.
func (s *lifeSite) held(t *testing.T) (found []string) {
	t.Helper()
	rdb := s.store.Client(t)
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if value := rdb.Get(t.Context(), key).Val(); strings.HasPrefix(value, "H") {
			found = append(found, key)
		}
	}
	return found
}

// lifeUntil waits until ok, in bounded time: asynq takes a minute to recover a task that a server
// has lost on a busy machine.
func lifeUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * lifeSoon); !ok(); time.Sleep(lifePoll) { // between two looks
		if time.Now().After(end) {
			require.FailNow(t, "this has not come: "+what)
		}
	}
}

func lifeReceive[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(lifeSoon):
		require.FailNow(t, "this has not come: "+what)
	}
	return v
}

// A lifeBook is what handlers of one process did.
type lifeBook struct {
	mu    sync.Mutex
	now   map[string]int // handlers under way, by customer
	most  map[string]int // the most of them at once
	begun []lifeEntry
	ended []lifeEntry
}

type lifeEntry struct {
	task, customer string // the task as it was enqueued
	at             time.Time
}

// keep returns a handler that does the work and writes it down.
func (b *lifeBook) keep(work asynq.HandlerFunc) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		e := lifeEntry{task: guardasynq.TaskID(ctx, task), customer: lifePayload(task).Customer}
		b.note(&b.begun, e, 1)
		defer b.note(&b.ended, e, -1)
		return work(ctx, task)
	})
}

func (b *lifeBook) note(where *[]lifeEntry, e lifeEntry, change int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now == nil {
		b.now, b.most = map[string]int{}, map[string]int{}
	}
	b.now[e.customer] += change
	b.most[e.customer] = max(b.most[e.customer], b.now[e.customer])
	e.at = time.Now()
	*where = append(*where, e)
}

// runs returns the begins of all handlers for the customer, and their ends, in order.
func (b *lifeBook) runs(customer string) (begun, ended []lifeEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	other := func(e lifeEntry) bool { return e.customer != customer }
	return slices.DeleteFunc(slices.Clone(b.begun), other), slices.DeleteFunc(slices.Clone(b.ended), other)
}

// awaitRuns waits for the begin of n handlers for the customer.
func (b *lifeBook) awaitRuns(t *testing.T, customer string, n int) {
	t.Helper()
	lifeUntil(t, "the handlers of "+customer, func() bool {
		begun, _ := b.runs(customer)
		return len(begun) >= n
	})
}

// together returns how many handlers for one customer were under way at once, at most.
func (b *lifeBook) together() (most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.most {
		most = max(most, n)
	}
	return most
}

// requireOnce requires that each of the tasks ran once.
func (b *lifeBook) requireOnce(t *testing.T, ids []string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var ran []string
	for _, e := range b.ended {
		ran = append(ran, e.task)
	}
	require.ElementsMatch(t, ids, ran)
}
