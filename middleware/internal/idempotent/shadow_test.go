package idempotent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// In shadow mode, each call runs, and its result is what it would have been.
func TestShadow_eachCallRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newStore(), idempotency.WithShadow(), idempotency.WithWait(time.Hour))
		for i, c := range []struct {
			request request
			result  idempotency.Result
			kept    idempotency.Keep
		}{
			{request{key: "k", print: "b"}, idempotency.Ran, idempotency.KeepAnswer},
			{request{key: "k", print: "b"}, idempotency.Replayed, idempotency.KeepNothing},
			{request{key: "k", print: "another"}, idempotency.Mismatch, idempotency.KeepNothing},
			{request{key: "fails", handler: fails}, idempotency.Ran, idempotency.KeepNothing},
			{request{key: "fails"}, idempotency.Ran, idempotency.KeepAnswer},
		} {
			got := s.send(t.Context(), c.request)
			require.Equal(t, c.result, got.Result)
			require.Equal(t, c.kept, got.Kept)
			require.NoError(t, got.Err)
			require.Equal(t, i+1, s.runs)
		}

		exclusive := newSite(t, newStore(), idempotency.WithShadow(), idempotency.WithMode(idempotency.Exclusive))
		for range 2 {
			got := exclusive.send(t.Context(), request{key: "k"})
			require.Equal(t, idempotency.Ran, got.Result)
			require.Equal(t, idempotency.KeepNothing, got.Kept)
		}
	})
}

// Calls of one key run at the same time, and none waits.
func TestShadow_callsAtOnceRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newStore(), idempotency.WithShadow(), idempotency.WithWait(time.Hour))
		end := make(chan struct{})
		first := s.start(t.Context(), request{key: "k", handler: until(end)})
		synctest.Wait()
		second := s.start(t.Context(), request{key: "k", handler: until(end)})
		synctest.Wait()
		require.Equal(t, 2, s.runs)
		close(end)
		require.Equal(t, idempotency.Ran, (<-first).Result)
		busy := <-second
		require.Equal(t, idempotency.InFlight, busy.Result)
		require.NotEmpty(t, busy.Label, "that of the holder")
	})
}

// The handler has the context of its call, and hooks learn of its run. A lease that is lost ends
// nothing.
func TestShadow_theHandlerIsAsWithoutUs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran []error
		hook := guard.Hook{
			RunEnd: func(_ context.Context, e guard.RunEndEvent) { ran = append(ran, e.Err) },
			Label:  func(context.Context) string { return "trace" },
		}
		store := &guardtest.Scripted{Inner: newStore()}
		s := newSite(t, store, idempotency.WithShadow(), idempotency.WithLease(guard.WithHook(hook), guard.WithLabel("host")))
		require.Equal(t, idempotency.KeepAnswer, s.send(t.Context(), request{key: "k"}).Kept)
		require.Equal(t, "host trace", s.send(t.Context(), request{key: "k"}).Label)
		require.Equal(t, []error{nil}, ran, "one run had a lease")

		ctx, leave := context.WithCancel(t.Context())
		got := s.send(ctx, request{key: "left", handler: func(ctx context.Context) (string, error) {
			require.Zero(t, guard.Fence(ctx))
			require.NoError(t, ctx.Err())
			leave()
			return "answer", context.Cause(ctx)
		}})
		require.Equal(t, idempotency.KeepNothing, got.Kept)

		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
		got = s.send(t.Context(), request{key: "lost", handler: func(ctx context.Context) (string, error) {
			time.Sleep(time.Hour)
			return "answer", ctx.Err()
		}})
		require.Equal(t, idempotency.KeepNothing, got.Kept)
		require.ErrorIs(t, got.Err, guard.ErrLost)
	})
}

// No call waits for the store for longer than a quarter of a second at its beginning, nor at its
// end.
func TestShadow_theStoreHoldsNothingUp(t *testing.T) {
	t.Parallel()
	const patience = 250 * time.Millisecond
	const grace = 100 * time.Millisecond // in which the Guard gives up
	for name, c := range map[string]struct {
		opts   []idempotency.Option
		result idempotency.Result
	}{
		"refused":   {nil, idempotency.Unavailable},
		"fail open": {[]idempotency.Option{idempotency.WithFailOpen()}, idempotency.Degraded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &guardtest.Scripted{Inner: newStore()}
				s := newSite(t, store, append(c.opts, idempotency.WithShadow())...)
				store.OnRelease = func(ctx context.Context, _ int, _ driver.Claim, _ driver.After) (bool, error) {
					return false, guardtest.Hang(ctx)
				}
				begun := time.Now()
				got := s.send(t.Context(), request{key: "k"})
				require.LessOrEqual(t, time.Since(begun), patience+grace)
				require.Equal(t, idempotency.Ran, got.Result)
				require.Equal(t, idempotency.KeepNothing, got.Kept, "as far as is known")
				require.Error(t, got.Err)

				store.OnRelease = nil
				store.OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
					return driver.Answer{}, guardtest.Hang(ctx)
				}
				begun = time.Now()
				got = s.send(t.Context(), request{key: "other"})
				require.LessOrEqual(t, time.Since(begun), patience+grace)
				require.Equal(t, c.result, got.Result)
				require.ErrorIs(t, got.Err, guard.ErrStore)
				require.Equal(t, 2, s.runs)
			})
		})
	}
}

func TestShadow_aClosedGuardHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newStore(), idempotency.WithShadow())
		require.NoError(t, s.guard.Close(t.Context()))
		got := s.send(t.Context(), request{key: "k"})
		require.Equal(t, idempotency.Unavailable, got.Result)
		require.ErrorIs(t, got.Err, guard.ErrClosed)
		require.Equal(t, 1, s.runs)
	})
}

// A panic propagates, and leaves the key free.
func TestShadow_aPanicLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newStore(), idempotency.WithShadow())
		require.PanicsWithValue(t, "boom", func() {
			s.send(t.Context(), request{key: "k", handler: func(context.Context) (string, error) { panic("boom") }})
		})
		got := s.send(t.Context(), request{key: "k"})
		require.Equal(t, idempotency.Ran, got.Result)
		require.Equal(t, idempotency.KeepAnswer, got.Kept)
	})
}
