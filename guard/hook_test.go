package guard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestHook_receivesARun(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		const slow = 100 * time.Millisecond
		var seen recorder
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			require.Equal(t, true, ctx.Value(hookKey("acquire start")), "the store gets the hook's context")
			time.Sleep(slow)
			return store.memory.TryAcquire(ctx, c)
		}
		mine := errors.New("mine")
		var fence uint64
		err := g.Do(t.Context(), "k", func(ctx context.Context) error {
			require.Equal(t, true, ctx.Value(hookKey("run start")), "the function gets the hook's context")
			fence = guard.Fence(ctx)
			time.Sleep(ttl * 7 / 20)
			return mine
		}, guard.WithName("work"), guard.WithHook(seen.hook()), guard.WithOwner("me"))
		require.Same(t, mine, err)
		synctest.Wait()
		names := seen.seen()
		require.Equal(t, []string{"acquire start", "acquire end", "run start", "renew", "run end", "release"}, names)

		start := last[guard.Event](t, &seen)
		require.Equal(t, guard.Event{Name: "work", Key: "k", Owner: "me", TTL: ttl, Start: start.Start}, start)
		require.Equal(t, guard.AcquireEvent{
			Event: start, StoreAnswer: guard.StoreAnswer{State: driver.Granted}, Duration: slow, Attempts: 1, Fence: fence,
		}, last[guard.AcquireEvent](t, &seen))
		lease := guard.LeaseEvent{
			Event: start, Fence: fence, Renewals: 1, MaxUsed: last[guard.RenewEvent](t, &seen).Used,
			Origin: last[guard.RunEndEvent](t, &seen).Origin,
		}
		lease.Start = start.Start.Add(slow)
		require.Equal(t, guard.RunEndEvent{
			RunEvent: guard.RunEvent{LeaseEvent: lease}, Duration: ttl * 7 / 20, Err: mine,
		}, last[guard.RunEndEvent](t, &seen))
		require.Equal(t, true, last[guard.RunEndEvent](t, &seen).Origin.Value(hookKey("acquire start")))
		lease.Start = start.Start.Add(slow + ttl*7/20)
		require.Equal(t, guard.ReleaseEvent{LeaseEvent: lease, Held: slow + ttl*7/20, Attempts: 1}, last[guard.ReleaseEvent](t, &seen))
		require.NoError(t, last[guard.RenewEvent](t, &seen).Err)
	})
}

func TestHook_receivesALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var seen recorder
		unreachable := errors.New("unreachable")
		store.OnRenew = func(_ context.Context, _ int, _ driver.Claim) (bool, error) { return false, unreachable }
		lease := hold(t, g, "k", guard.WithHook(seen.hook()))
		<-lease.Context().Done()
		synctest.Wait()
		require.ErrorIs(t, last[guard.RenewEvent](t, &seen).Err, unreachable)
		loss := last[guard.LossEvent](t, &seen)
		require.ErrorIs(t, loss.Err.Renew, unreachable)
		require.NotErrorIs(t, loss.Err, unreachable, "errors.Is does not find the error of the renewal")
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
		require.ErrorIs(t, last[guard.ReleaseEvent](t, &seen).Err, guard.ErrLost)
	})
}

func TestHook_receivesThatARunDidNotReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var seen recorder
		require.Panics(t, func() {
			_ = g.Do(t.Context(), "k", func(context.Context) error { panic("no") }, guard.WithHook(seen.hook()))
		})
		require.True(t, last[guard.RunEndEvent](t, &seen).Aborted)
	})
}

func TestHook_thatPanicsIsContained(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var after recorder
		broken := guard.Hook{
			AcquireStart: func(context.Context, guard.Event) context.Context { panic("hook") },
			Wait:         func(context.Context, guard.WaitEvent) { panic("hook") },
			AcquireEnd:   func(context.Context, guard.AcquireEvent) { panic("hook") },
			Skip:         func(context.Context, guard.SkipEvent) { panic("hook") },
			RunStart:     func(context.Context, guard.RunEvent) context.Context { panic("hook") },
			RunEnd:       func(context.Context, guard.RunEndEvent) { panic("hook") },
			Renew:        func(context.Context, guard.RenewEvent) { panic("hook") },
			Loss:         func(context.Context, guard.LossEvent) { panic("hook") },
			Release:      func(context.Context, guard.ReleaseEvent) { panic("hook") },
		}
		empty := guard.Hook{AcquireStart: func(context.Context, guard.Event) context.Context { return nil }}
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			require.ErrorIs(t, g.Do(t.Context(), "k", nothing, guard.WithHook(broken), guard.WithWait(time.Second)), guard.ErrBusy)
			time.Sleep(ttl)
			return nil
		}, guard.WithHook(broken), guard.WithHook(empty), guard.WithHook(after.hook())))
		require.True(t, store.free("k"))
		require.Contains(t, after.seen(), "release", "the hooks after it are still called")
	})
}

func TestHook_cannotDelayReleaseOrRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		stuck := make(chan struct{})
		slow := guard.Hook{
			RunEnd:  func(context.Context, guard.RunEndEvent) { <-stuck },
			Release: func(context.Context, guard.ReleaseEvent) { <-stuck },
			Renew:   func(context.Context, guard.RenewEvent) { <-stuck },
			Loss:    func(context.Context, guard.LossEvent) { <-stuck },
		}
		go func() {
			_ = g.Do(t.Context(), "k", sleeping(5*ttl), guard.WithHook(slow))
		}()
		time.Sleep(4 * ttl)
		require.False(t, store.free("k"), "the lease was renewed throughout")
		time.Sleep(ttl)
		synctest.Wait()
		require.True(t, store.free("k"), "the lease was released although the hook has not returned")
		close(stuck)
	})
}

// A hook may use the Guard: none of the Guard's locks is held while it runs.
func TestHook_backgroundMayUseTheGuard(t *testing.T) {
	store := newTestStore()
	store.leaveOnAnswer()
	var g *guard.Guard
	var once sync.Once
	done := make(chan struct{})
	hook := guard.Hook{Background: func(ctx context.Context) context.Context {
		once.Do(func() {
			go func() { abandon(t, g, "other"); close(done) }()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				require.Fail(t, "a call of the hook does not return")
			}
		})
		return ctx
	}}
	g = openGuard(t, store, guard.WithHook(hook))
	abandon(t, g, "k")
	<-done
	require.NoError(t, g.Close(t.Context()))
	require.True(t, store.free("k"))
}

// Renewals and clean-ups go on whatever the hook Background does.
func TestHook_backgroundCannotStopWhatTheGuardDoes(t *testing.T) {
	for _, a := range append(aborts, struct {
		name  string
		abort func()
	}{"a nil context", func() {}}) {
		t.Run(a.name, func(t *testing.T) {
			var calls atomic.Int64
			inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
				store.leaveOnAnswer()
				abandon(t, g, "k")
				synctest.Wait()
				require.True(t, store.free("k"), "it was cleaned up")
				lease := hold(t, g, "k")
				time.Sleep(3 * ttl)
				require.True(t, lease.Valid(), "it was renewed")
				require.NoError(t, lease.Release(t.Context()))
				require.Positive(t, calls.Load())
			}, guard.WithHook(guard.Hook{Background: func(context.Context) context.Context {
				calls.Add(1)
				a.abort()
				return nil
			}}))
		})
	}
}
