// Package onerun_test tries the whole system from outside: the same story on every backend. What
// several processes see is tried in internal/verify/system.
package onerun_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Most of the time, the stories wait for leases to end.
func TestMain(m *testing.M) {
	redistest.AtOnce(5)
	os.Exit(m.Run())
}

// ttl outlasts the stalls of a busy machine. Servers measure it in real time.
const ttl = 2 * time.Second

// Each backend has servers of its own. On these, each story has a Guard and a key of its own.
func TestSystem(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend.Name, func(t *testing.T) {
			t.Parallel()
			store := backend.Start(t)
			for name, tell := range map[string]func(t *testing.T, g *guard.Guard, key string){
				"runs once, and keeps repeats out":     runsOnceAndKeepsRepeatsOut,
				"runs longer than its TTL":             runsLongerThanItsTTL,
				"a failure leaves the work to be done": failureLeavesTheWorkToBeDone,
				"a minimum hold outlasts the run":      minHoldOutlastsTheRun,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					g, err := guard.New(store, guard.WithTTL(ttl))
					require.NoError(t, err)
					tell(t, g, name)
					require.NoError(t, g.Close(t.Context()))
				})
			}
		})
	}
}

func nothing(context.Context) error { return nil }

func runsOnceAndKeepsRepeatsOut(t *testing.T, g *guard.Guard, key string) {
	var runs atomic.Int64
	results := make(chan error)
	const callers = 20
	for range callers {
		go func() {
			results <- g.Do(t.Context(), key, func(ctx context.Context) error {
				runs.Add(1)
				lease, _ := guard.FromContext(ctx)
				assert.NoError(t, lease.SetRecord([]byte("report.pdf")))
				return nil
			}, guard.WithOnce(time.Hour), guard.WithWait(10*time.Second), guard.WithName("a report"))
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
		require.Equal(t, "a report", done.Name)
		require.WithinDuration(t, time.Now(), done.At, time.Minute)
	}
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, 1, ran)
}

func runsLongerThanItsTTL(t *testing.T, g *guard.Guard, key string) {
	var fence uint64
	require.NoError(t, g.Do(t.Context(), key, func(ctx context.Context) error {
		fence = guard.Fence(ctx)
		end := time.Now().Add(5 * ttl / 2)
		for time.Now().Before(end) {
			require.ErrorIs(t, g.Do(t.Context(), key, nothing), guard.ErrBusy)
			require.NoError(t, g.Do(ctx, key, nothing), "but a call of the holder joins")
			time.Sleep(5 * time.Millisecond) // the other stories need the processors, too
		}
		return context.Cause(ctx)
	}))
	require.NoError(t, g.Do(t.Context(), key, func(ctx context.Context) error {
		require.Greater(t, guard.Fence(ctx), fence)
		return nil
	}))
}

func failureLeavesTheWorkToBeDone(t *testing.T, g *guard.Guard, key string) {
	failed := errors.New("failed")
	once := guard.WithOnce(time.Hour)
	require.ErrorIs(t, g.Do(t.Context(), key, func(context.Context) error { return failed }, once), failed)
	require.Panics(t, func() { _ = g.Do(t.Context(), key, func(context.Context) error { panic(failed) }, once) })
	require.NoError(t, g.Do(t.Context(), key, nothing, once))
	require.ErrorIs(t, g.Do(t.Context(), key, nothing, once), guard.ErrDone)
}

func minHoldOutlastsTheRun(t *testing.T, g *guard.Guard, key string) {
	const hold = 3 * ttl / 2 // the TTL does not end it
	start := time.Now()
	require.NoError(t, g.Do(t.Context(), key, nothing, guard.WithMinHold(hold)))
	require.ErrorIs(t, g.Do(t.Context(), key, nothing), guard.ErrBusy)
	require.NoError(t, g.Do(t.Context(), key, nothing, guard.WithWait(5*time.Second)))
	require.GreaterOrEqual(t, time.Since(start), hold-10*time.Millisecond)
}
