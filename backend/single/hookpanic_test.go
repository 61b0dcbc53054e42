package single_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A bomb is a hook that panics once when it is armed.
type bomb struct {
	witness
	armed atomic.Bool
}

func (b *bomb) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.armed.CompareAndSwap(true, false) {
			panic("a bug in a hook")
		}
		b.note(cmd)
		return next(ctx, cmd)
	}
}

// After a panic in a hook, calls neither wait behind the one that panicked nor lose the connection
// that it used.
func TestOwn_aHookThatPanicsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hook := &bomb{}
	l := single.New(client(t, server.Addr()), single.WithClientSetup(func(own *redis.Client) { own.AddHook(hook) }))
	pairs := func(n int) {
		for range n {
			require.NoError(t, take(t.Context(), l, claimOf(1)))
			_, err := l.Release(t.Context(), claimOf(1), guard.After{})
			require.NoError(t, err)
		}
	}
	onOwn := func() bool {
		before := hook.count("evalsha")
		pairs(1)
		return hook.count("evalsha") > before
	}
	require.Eventually(t, onOwn, 10*time.Second, time.Millisecond)
	hook.armed.Store(true)
	require.Panics(t, func() {
		for {
			pairs(1)
		}
	})
	start := time.Now()
	pairs(40)
	require.Less(t, time.Since(start), time.Second, "each would wait for 50 ms behind a batch that never ends")
	require.Eventually(t, onOwn, 10*time.Second, time.Millisecond, "the connection is free again")
}
