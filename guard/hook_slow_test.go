package guard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// A hook that does not return keeps a goroutine, so Close must not return nil.
func TestClose_countsAHookThatHasNotReturned(t *testing.T) {
	for name, hook := range map[string]func(block func()) guard.Hook{
		"in the background": func(block func()) guard.Hook {
			return guard.Hook{Renew: func(context.Context, guard.RenewEvent) { block() }}
		},
		"in the call": func(block func()) guard.Hook {
			return guard.Hook{AcquireStart: func(ctx context.Context, _ guard.Event) context.Context { block(); return ctx }}
		},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			unblock := make(chan struct{})
			g := openGuard(t, newTestStore(), guard.WithTTL(ttl), guard.WithHook(hook(func() { <-unblock })))
			go func() {
				_ = g.Do(context.Background(), "k", sleeping(ttl))
			}()
			time.Sleep(ttl / 2)
			err := closeWithin(t, g, time.Minute)
			require.ErrorContains(t, err, "hook")
			require.NotErrorIs(t, err, guard.ErrStore)
			close(unblock)
			synctest.Wait()
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

// Do must not run the function if the lease ends while a hook is running.
func TestDo_doesNotRunUnderALeaseThatEndedInAHook(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(g *guard.Guard)
		want error
	}{
		"lost": {func(*guard.Guard) { time.Sleep(2 * ttl) }, guard.ErrLost},
		"revoked": {func(g *guard.Guard) {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = g.Close(ended)
		}, guard.ErrClosed},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, store *testStore) {
			hook := guard.Hook{AcquireEnd: func(context.Context, guard.AcquireEvent) { c.end(g) }}
			opts := []guard.Option{guard.WithHook(hook), guard.WithoutRenewal()}
			err := g.Do(t.Context(), "k", func(context.Context) error { t.Error("ran"); return nil }, opts...)
			require.ErrorIs(t, err, c.want)
			require.False(t, guard.Ran(err))
			require.True(t, store.free("k"))
		})
	}
}

// A slow hook delays only the reports. The Guard keeps a bounded number of events for it and
// counts the events that it drops.
func TestLong_aHookThatIsTooSlowDropsABoundedNumberOfEvents(t *testing.T) {
	leftout.IfShort(t)
	var delivered, dropped atomic.Int64
	unblock := make(chan struct{})
	synctest.Test(t, func(t *testing.T) {
		unblock = make(chan struct{})
		store := newTestStore()
		count := func(e guard.Event) {
			<-unblock
			delivered.Add(1)
			dropped.Add(int64(e.Dropped))
		}
		g, err := guard.New(store, guard.WithTTL(ttl), guard.WithHook(guard.Hook{
			Loss:  func(_ context.Context, e guard.LossEvent) { count(e.Event) },
			Renew: func(_ context.Context, e guard.RenewEvent) { count(e.Event) },
		}))
		require.NoError(t, err)
		const leases = 21_000 // 20,000 losses wait, and the rest is dropped
		for i := range leases {
			hold(t, g, fmt.Sprint("k", i), guard.WithoutRenewal())
		}
		time.Sleep(2 * ttl) // all are lost
		close(unblock)
		synctest.Wait()
		require.Less(t, delivered.Load(), int64(leases))
		hold(t, g, "last", guard.WithoutRenewal())
		time.Sleep(2 * ttl)
		require.Equal(t, int64(leases+1), delivered.Load()+dropped.Load())
		_ = closeWithin(t, g, time.Second)
	})
}

func TestHook_thatEndsItsGoroutineDoesNotEndTheReports(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var seen atomic.Int64
		hook := guard.WithHook(guard.Hook{Renew: func(context.Context, guard.RenewEvent) { seen.Add(1); runtime.Goexit() }})
		lease := hold(t, g, "k", hook)
		time.Sleep(3 * ttl)
		require.GreaterOrEqual(t, seen.Load(), int64(8))
		require.NoError(t, lease.Release(t.Context()))
	})
}
