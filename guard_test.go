// Package onerun_test tries the whole system from outside: the same story on every backend. What
// several processes see is tried in internal/verify/system.
package onerun_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// backends are what everything is tried on.
var backends = map[string]func(t *testing.T) guard.Locker{
	"memory": func(*testing.T) guard.Locker { return memory.New() },
	"single": func(t *testing.T) guard.Locker { return single.New(redistest.Start(t).Client(t)) },
	"single on miniredis": func(t *testing.T) guard.Locker {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		require.NoError(t, server.Start())
		t.Cleanup(server.Close)
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		return single.New(rdb)
	},
	"reentrant": func(t *testing.T) guard.Locker { return reentrant.New(redistest.Start(t).Client(t)) },
	"reentrant on a cluster": func(t *testing.T) guard.Locker {
		return reentrant.New(redistest.StartCluster(t).Client(t))
	},
	"redlock": func(t *testing.T) guard.Locker {
		var nodes []guard.Locker
		for _, s := range redistest.StartN(t, 5) {
			nodes = append(nodes, single.New(s.Client(t)))
		}
		return redlock.New(nodes)
	},
	"redlock of reentrant nodes and memory": func(t *testing.T) guard.Locker {
		nodes := []guard.Locker{memory.New()}
		for _, s := range redistest.StartN(t, 2) {
			nodes = append(nodes, reentrant.New(s.Client(t)))
		}
		return redlock.New(nodes)
	},
	"single on a cluster": func(t *testing.T) guard.Locker { return single.New(redistest.StartCluster(t).Client(t)) },
}

// onEvery runs f with a Guard on each backend.
func onEvery(t *testing.T, f func(t *testing.T, g *guard.Guard)) {
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			g, err := guard.New(backend(t), guard.WithTTL(500*time.Millisecond))
			require.NoError(t, err)
			f(t, g)
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

func nothing(context.Context) error { return nil }

func TestSystem_runsOnceAndKeepsRepeatsOut(t *testing.T) {
	onEvery(t, func(t *testing.T, g *guard.Guard) {
		var runs atomic.Int64
		results := make(chan error)
		const callers = 20
		for range callers {
			go func() {
				results <- g.Do(t.Context(), "report:2026-11-21", func(ctx context.Context) error {
					runs.Add(1)
					lease, _ := guard.FromContext(ctx)
					assert.NoError(t, lease.SetRecord([]byte("report.pdf")))
					return nil
				}, guard.WithOnce(time.Hour), guard.WithWait(10*time.Second))
			}()
		}
		ran := 0
		for range callers {
			err := <-results
			var done *guard.DoneError
			if err == nil {
				ran++
				continue
			}
			require.ErrorAs(t, err, &done)
			require.Equal(t, "report.pdf", string(done.Record))
			require.Greater(t, done.Left, 59*time.Minute)
		}
		require.EqualValues(t, 1, runs.Load())
		require.Equal(t, 1, ran)
	})
}

func TestSystem_runsLongerThanItsTTL(t *testing.T) {
	onEvery(t, func(t *testing.T, g *guard.Guard) {
		var fence uint64
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			fence = guard.Fence(ctx)
			end := time.Now().Add(1200 * time.Millisecond)
			for time.Now().Before(end) {
				require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
				require.NoError(t, g.Do(ctx, "k", nothing), "but whoever holds it already joins")
			}
			return context.Cause(ctx)
		}))
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			require.Greater(t, guard.Fence(ctx), fence)
			return nil
		}))
	})
}

func TestSystem_failureLeavesTheWorkToBeDone(t *testing.T) {
	onEvery(t, func(t *testing.T, g *guard.Guard) {
		failed := errors.New("failed")
		once := guard.WithOnce(time.Hour)
		require.ErrorIs(t, g.Do(t.Context(), "k", func(context.Context) error { return failed }, once), failed)
		require.Panics(t, func() { _ = g.Do(t.Context(), "k", func(context.Context) error { panic(failed) }, once) })
		require.NoError(t, g.Do(t.Context(), "k", nothing, once))
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing, once), guard.ErrDone)
	})
}

func TestSystem_minHoldOutlastsTheRun(t *testing.T) {
	onEvery(t, func(t *testing.T, g *guard.Guard) {
		start := time.Now()
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithMinHold(time.Second)))
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(5*time.Second)))
		require.GreaterOrEqual(t, time.Since(start), 990*time.Millisecond)
	})
}
