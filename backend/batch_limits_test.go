package backend_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestWithoutBatching_noScriptHasTheKeysOfTwoClaims(t *testing.T) {
	t.Parallel()
	for name, backend := range map[string]func(redis.UniversalClient) guard.Locker{
		"single": func(rdb redis.UniversalClient) guard.Locker { return single.New(rdb, single.WithoutBatching()) },
		"reentrant": func(rdb redis.UniversalClient) guard.Locker {
			return reentrant.New(rdb, reentrant.WithoutBatching())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := batcherOn(redistest.Start(t).Client(t), backend)
			for _, op := range []func(key string) op{
				func(key string) op { return take(key, "id") },
				func(key string) op { return give(key, "id") },
			} {
				f.send(t, op("warm")) // the server has the script now
				answers, sizes := f.send(t, many(20, op)...)
				for _, a := range answers {
					require.NoError(t, a.err)
				}
				sum := 0
				for _, n := range sizes {
					sum += n
				}
				require.GreaterOrEqual(t, sum, 20, "a command for each claim")
			}
		})
	}
}

// Behind a server that does not answer, the requests of callers that have left do not pile up.
func TestQueue_dropsCallersThatHaveLeft(t *testing.T) {
	t.Parallel()
	const callers = 3000
	server := redistest.Start(t)
	l := single.New(server.Client(t))
	_, err := l.TryAcquire(t.Context(), claim("first", "id"))
	require.NoError(t, err)
	start := func(ctx context.Context, name string, left *atomic.Int64) {
		for i := range callers {
			l.Start(ctx, driver.OpAcquire, []driver.Claim{claim(fmt.Sprint(name, i), "id")}, driver.After{}, func(_ int, _ driver.Answer, err error) {
				if err != nil {
					left.Add(1)
				}
			})
		}
	}
	var stay, left atomic.Int64
	server.Freeze()
	defer server.Thaw()
	start(t.Context(), "sent", &stay)
	// Nothing shows how many requests are under way. There may be eight batches, 50 ms apart.
	time.Sleep(time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	start(ctx, "left", &left)
	cancel()
	for range 3 {
		start(t.Context(), "stay", &stay)
	}
	require.Zero(t, stay.Load(), "nothing has been answered")
	require.EqualValues(t, callers, left.Load())
}

// A turnstile holds each script until it may pass.
type turnstile struct {
	waiting atomic.Int64
	pass    chan struct{}
}

func (h *turnstile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" { // connecting has commands, too
			h.waiting.Add(1)
			<-h.pass
		}
		return next(ctx, cmd)
	}
}

func (h *turnstile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *turnstile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// When as many batches are out as may be, and one of them ends, the next one starts, although the
// others get no answer.
func TestQueue_goesOnWhenOneOfTheMostBatchesEnds(t *testing.T) {
	t.Parallel()
	const most = 8
	server := redistest.Start(t)
	// The server learns the script, so that no command comes twice.
	_, err := single.New(server.Client(t)).TryAcquire(t.Context(), claim("warm", "id"))
	require.NoError(t, err)
	rdb := server.Client(t)
	hook := &turnstile{pass: make(chan struct{})}
	rdb.AddHook(hook)
	l := single.New(wrapped{rdb})
	var ended atomic.Int64
	start := func(n int) {
		claims := []driver.Claim{claim(fmt.Sprint("k", n), "id")}
		l.Start(t.Context(), driver.OpAcquire, claims, driver.After{}, func(int, driver.Answer, error) { ended.Add(1) })
	}
	waiting := func(n int64) func() bool { return func() bool { return hook.waiting.Load() == n } }
	for n := range most {
		start(n)
		require.Eventually(t, waiting(int64(n+1)), 10*time.Second, time.Millisecond)
	}
	start(most)
	hook.pass <- struct{}{}
	require.Eventually(t, waiting(most+1), 10*time.Second, time.Millisecond)
	close(hook.pass)
	require.Eventually(t, func() bool { return ended.Load() == most+1 }, 10*time.Second, time.Millisecond)
}
