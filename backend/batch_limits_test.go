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

// When as many batches are out as may be, the requests of callers that have left do not pile up. If
// one batch ends, the next one starts, although the others get no answer.
func TestQueue_goesOnWhenOneOfTheMostBatchesEnds(t *testing.T) {
	t.Parallel()
	const most, callers = 8, 3000
	server := redistest.Start(t)
	// The server learns the script, so that no command comes twice.
	_, err := single.New(server.Client(t)).TryAcquire(t.Context(), claim("warm", "id"))
	require.NoError(t, err)
	rdb := server.Client(t)
	hook := &turnstile{pass: make(chan struct{})}
	rdb.AddHook(hook)
	l := single.New(wrapped{rdb})
	var granted, failed atomic.Int64
	start := func(ctx context.Context, name string, n int) {
		for i := range n {
			claims := []driver.Claim{claim(fmt.Sprint(name, i), "id")}
			l.Start(ctx, driver.OpAcquire, claims, driver.After{}, func(_ int, _ driver.Answer, err error) {
				if err != nil {
					failed.Add(1)
				} else {
					granted.Add(1)
				}
			})
		}
	}
	waiting := func(n int64) func() bool { return func() bool { return hook.waiting.Load() == n } }
	for n := range int64(most) {
		start(t.Context(), fmt.Sprint("k", n), 1)
		require.Eventually(t, waiting(n+1), settled, time.Millisecond)
	}
	ctx, leave := context.WithCancel(t.Context())
	start(ctx, "leaves", callers)
	leave()
	start(t.Context(), "stays", 3*callers)
	require.EqualValues(t, callers, failed.Load())
	require.Zero(t, granted.Load(), "nothing has been answered")
	hook.pass <- struct{}{}
	require.Eventually(t, waiting(most+1), settled, time.Millisecond)
	close(hook.pass)
	require.Eventually(t, func() bool { return granted.Load() == most+3*callers }, settled, time.Millisecond)
	require.EqualValues(t, callers, failed.Load())
}
