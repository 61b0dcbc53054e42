package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
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

// A station is where the tasks of a benchmark come from, and what it may use.
type station struct {
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
}

// An asynqImpl puts something around a handler.
type asynqImpl struct {
	name   string
	around func(b *testing.B, s station, work asynq.Handler) asynq.Handler
}

var asynqImpls = []asynqImpl{
	{"asynq", func(_ *testing.B, _ station, work asynq.Handler) asynq.Handler { return work }},
	{"byhand", lockedByHand},
	{"onerun", guardedAsynq},
}

// deleteOwn deletes a key that has the value of the caller.
var deleteOwn = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// lockedByHand is the least that a lock around a handler costs on the same client: two round
// trips, with no renewal and no fence.
func lockedByHand(_ *testing.B, s station, work asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		key, token := "lock:"+string(task.Payload()), rand.Text()
		ok, err := s.rdb.SetNX(ctx, key, token, 15*time.Second).Result()
		if err != nil || !ok {
			return fmt.Errorf("busy (%w)", err)
		}
		defer deleteOwn.Run(ctx, s.rdb, []string{key}, token)
		return work.ProcessTask(ctx, task)
	})
}

// guardedAsynq is the middleware over the single backend, with its defaults and a key for each
// task.
func guardedAsynq(b *testing.B, s station, work asynq.Handler) asynq.Handler {
	g, err := guard.New(single.New(s.rdb), guard.WithNamespace("test"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, g.Close(context.Background())) })
	mw, err := guardasynq.New(g, guardasynq.FromJSON("order"), guardasynq.WithClient(s.client, s.inspector))
	require.NoError(b, err)
	return mw(work)
}

// BenchmarkAsynq is the time of a task, from its place in the queue until asynq knows that it is
// done, with nobody else at its key: bare, and through the middleware. Tasks that take a while
// show what is left of the difference where there is work to do.
func BenchmarkAsynq(b *testing.B) {
	for _, work := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		for _, workers := range []int{10, 50} {
			for _, impl := range asynqImpls {
				b.Run(fmt.Sprintf("work=%v/workers=%d/impl=%s", work, workers, impl.name), func(b *testing.B) {
					benchmarkAsynq(b, impl, work, workers)
				})
			}
		}
	}
}

func benchmarkAsynq(b *testing.B, impl asynqImpl, work time.Duration, workers int) {
	server := redistest.Start(b)
	conn := asynq.RedisClientOpt{Addr: server.Addr()}
	s := station{rdb: server.Client(b), client: asynq.NewClient(conn), inspector: asynq.NewInspector(conn)}
	b.Cleanup(func() { _, _ = s.client.Close(), s.inspector.Close() })
	for i := range b.N {
		payload := `{"order":` + strconv.Itoa(i) + `}`
		_, err := s.client.Enqueue(asynq.NewTask("ship", []byte(payload)))
		require.NoError(b, err)
	}

	var done atomic.Int64
	all := make(chan struct{})
	handler := impl.around(b, s, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if work > 0 {
			time.Sleep(work) // the task's own work
		}
		if done.Add(1) == int64(b.N) {
			close(all)
		}
		return nil
	}))
	config := asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel}
	srv := asynq.NewServer(conn, guardasynq.Configure(config))
	b.ResetTimer()
	require.NoError(b, srv.Start(handler))
	<-all
	for left := 1; left > 0; { // until asynq knows
		info, err := s.inspector.GetQueueInfo("default")
		require.NoError(b, err)
		left = info.Active
	}
	b.StopTimer()
	srv.Shutdown()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
