package backend_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// hurry makes calls with contexts of 0 to 5 ms, by n goroutines, until stop is called, but no more
// than hurriedCalls: a busy machine cleans up more slowly than they come. It starts with so many
// calls that some have given up at each moment of a request.
func hurry(t *testing.T, n int, do func(ctx context.Context, i int) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all, first sync.WaitGroup
	first.Add(n)
	for i := range n {
		all.Go(func() {
			for made := 0; ctx.Err() == nil && made <= 20+hurriedCalls/n; made++ {
				if made == 20 {
					first.Done()
				}
				hurried, end := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
				_ = do(hurried, i)
				end()
			}
		})
	}
	first.Wait()
	return func() { cancel(); all.Wait() }
}

const hurriedCalls = 1000

// onTwo runs f on each backend, with a server of its own, and with Guards as of two processes.
func onTwo(t *testing.T, opts []guard.Option, f func(t *testing.T, l guard.Locker, guards [2]*guard.Guard)) {
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			var guards [2]*guard.Guard
			for i := range guards {
				g, err := guard.New(backend(server.Client(t)), append(opts, guard.WithTTL(10*time.Minute), guard.WithWait(guard.Forever))...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
				guards[i] = g
			}
			f(t, backend(server.Client(t)), guards)
		})
	}
}

// requireShown waits until what the store keeps about the key is as described. That is far sooner
// than the TTL.
func requireShown(t *testing.T, l guard.Locker, is func(info driver.KeyInfo) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		info, err := l.(driver.Inspector).Show(t.Context(), "k")
		return err == nil && is(info)
	}, settled, 5*time.Millisecond)
}

// settled is how long a busy machine may take for what is over in a moment on another.
const settled = time.Minute

func work(context.Context) error { return nil }

// Calls that give up, each at some moment of its request, leave nothing in the queue of the store.
// The callers that stay are served.
func TestQueue_callsThatGiveUpDelayNobody(t *testing.T) {
	t.Parallel()
	onTwo(t, []guard.Option{guard.WithFair()}, func(t *testing.T, l guard.Locker, guards [2]*guard.Guard) {
		for _, n := range []int{5, 50} {
			stop := hurry(t, n, func(ctx context.Context, i int) error { return guards[i%2].Do(ctx, "k", work) })
			var patient sync.WaitGroup
			for i := range 12 {
				patient.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), settled)
					defer cancel()
					assert.NoError(t, guards[i%2].Do(ctx, "k", work), "a caller that stays")
				})
			}
			patient.Wait()
			stop()
			requireShown(t, l, func(info driver.KeyInfo) bool { return len(info.Queue) == 0 })
			require.NoError(t, guards[0].Do(t.Context(), "k", work, guard.WithWait(0)), "the key is free")
		}
	})
}

// A writer that gives up at any moment of its request keeps no reader away.
func TestShared_writersThatGiveUpKeepNoReaderAway(t *testing.T) {
	t.Parallel()
	onTwo(t, nil, func(t *testing.T, l guard.Locker, guards [2]*guard.Guard) {
		for _, n := range []int{5, 50} {
			reader, err := guards[0].Acquire(t.Context(), "k", guard.WithShared())
			require.NoError(t, err)
			stop := hurry(t, n, func(ctx context.Context, i int) error { return guards[i%2].Do(ctx, "k", work) })
			stop()
			requireShown(t, l, func(info driver.KeyInfo) bool { return info.Wanted == "" })
			require.NoError(t, guards[1].Do(t.Context(), "k", work, guard.WithShared(), guard.WithWait(0)))
			require.NoError(t, reader.Release(t.Context()))
		}
	})
}
