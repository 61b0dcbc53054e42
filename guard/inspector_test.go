package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestInspector_usesTheNamespaceAndTheHooks(t *testing.T) {
	store := memory.New()
	var calls []guard.CallEvent
	g, err := guard.New(store, guard.WithNamespace("app"), guard.WithHook(guard.Hook{
		Call: func(_ context.Context, e guard.CallEvent) {
			if e.Op == driver.OpInspect {
				calls = append(calls, e)
			}
		},
	}))
	require.NoError(t, err)
	ctx := t.Context()
	lease, err := g.Acquire(ctx, "key")
	require.NoError(t, err)
	inspector, ok := g.Adapter().Inspector()
	require.True(t, ok)

	info, err := inspector.Show(ctx, "key")
	require.NoError(t, err)
	require.Equal(t, lease.ID(), info.Holders[0].ID)
	outside, err := store.Show(ctx, "key")
	require.NoError(t, err)
	require.Empty(t, outside.Holders)
	keys, next, err := inspector.Keys(ctx, "k", "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"key"}, keys)
	require.Empty(t, next)
	forgotten, err := inspector.Forget(ctx, "key")
	require.NoError(t, err)
	require.False(t, forgotten)
	broken, err := inspector.Break(ctx, "key", lease.ID(), driver.Break{Now: true})
	require.NoError(t, err)
	require.True(t, broken)

	require.Len(t, calls, 4)
	for i, key := range []string{"key", "k", "key", "key"} {
		require.Equal(t, key, calls[i].Key)
		require.NoError(t, calls[i].Err)
	}
	require.ErrorIs(t, lease.Release(ctx), guard.ErrLost)
	require.NoError(t, g.Close(ctx))
}

// mute is a store that does not answer an Inspector.
type mute struct {
	*memory.Locker
	refuse error
}

func (m mute) Show(ctx context.Context, _ string) (driver.KeyInfo, error) {
	<-ctx.Done()
	return driver.KeyInfo{}, ctx.Err()
}

func (m mute) Keys(context.Context, string, string, int) ([]string, string, error) {
	return nil, "", m.refuse
}

func TestInspector_boundsItsCallsAndTellsErrorsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &guard.SettingError{Setting: "cursor"}
		g := openGuard(t, mute{memory.New(), refused})
		inspector, ok := g.Adapter().Inspector()
		require.True(t, ok)

		began := time.Now()
		_, err := inspector.Show(t.Context(), "key")
		require.Equal(t, 5*time.Second, time.Since(began))
		store := as[*guard.StoreError](t, err)
		require.Equal(t, driver.OpInspect, store.Op)
		require.Equal(t, "key", store.Key)

		cause := errors.New("the operator has left")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_, err = inspector.Show(ctx, "key")
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, guard.ErrStore)

		_, _, err = inspector.Keys(t.Context(), "", "bad", 10)
		require.Equal(t, refused, err)
		for _, n := range []int{0, 10001} {
			var bad *guard.SettingError
			_, _, err = inspector.Keys(t.Context(), "", "", n)
			require.ErrorAs(t, err, &bad)
			require.Equal(t, "n", bad.Setting)
		}
		var bad *guard.KeyError
		_, err = inspector.Forget(t.Context(), "")
		require.ErrorAs(t, err, &bad)
	})
}

func TestInspector_isMissingIfTheBackendHasNone(t *testing.T) {
	g := openGuard(t, leasesOnly{memory.New()})
	_, ok := g.Adapter().Inspector()
	require.False(t, ok)
}

func TestHeld_returnsWhatIsHeldForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGuard(t, memory.New())
		ctx := t.Context()
		defer func() { require.NoError(t, g.Close(ctx)) }()
		keys := []string{"first", "second", "third"}
		for _, key := range keys {
			l, err := g.Acquire(ctx, key, guard.WithShared())
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Release(ctx)) }()
			time.Sleep(time.Second)
		}
		// which shares the lease in the store
		second, err := g.Acquire(ctx, "first", guard.WithShared())
		require.NoError(t, err)
		held, more := g.Adapter().Held(2*time.Second, 10)
		require.Zero(t, more)
		require.Len(t, held, 2)
		held, more = g.Adapter().Held(0, 3)
		require.Equal(t, 1, more)
		for i, key := range keys {
			require.Equal(t, key, held[i].Key)
		}
		require.NoError(t, second.Release(ctx))
		held, _ = g.Adapter().Held(0, 10)
		require.Len(t, held, 3)
	})
}
