package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestHook_labelsTheLease(t *testing.T) {
	type run struct{}
	hook := guard.Hook{
		AcquireStart: func(ctx context.Context, _ guard.Event) context.Context {
			return context.WithValue(ctx, run{}, "acquire")
		},
		RunStart: func(ctx context.Context, _ guard.RunEvent) context.Context {
			return context.WithValue(ctx, run{}, "run")
		},
		Label: func(ctx context.Context) string { return "from-" + ctx.Value(run{}).(string) },
	}
	panics := guard.Hook{Label: func(context.Context) string { panic("hook") }}
	long := guard.Hook{Label: func(context.Context) string { return strings.Repeat("x", 502) }}
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		opts := []guard.Option{guard.WithLabel("me"), guard.WithOnce(time.Hour), guard.WithHook(panics), guard.WithHook(hook), guard.WithHook(long)}
		require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error {
			require.Equal(t, "me from-acquire", as[*guard.BusyError](t, g.Do(t.Context(), "k", nothing)).Label)
			return nil
		}, opts...))
		released := store.Calls()[len(store.Calls())-1]
		require.Equal(t, driver.OpRelease, released.Op)
		require.Regexp(t, "^\x1e[0-9]+ \x1fme from-run$", released.Claim.Label)
	})
}

func TestHook_Label_cannotDelayTheRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		calls, ended := 0, false
		hook := guard.Hook{Label: func(context.Context) string {
			require.False(t, ended, "no hook may run between the end of a run and its release")
			calls++
			return "more"
		}}
		require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error { ended = true; return nil }, guard.WithOnce(time.Hour), guard.WithHook(hook)))
		require.Equal(t, 2, calls)
		ended = false
		lease := hold(t, g, "k2", guard.WithOnce(time.Hour), guard.WithHook(hook))
		var run context.Context
		require.NoError(t, lease.Run(lease.Context(), func(ctx context.Context) error { run, ended = ctx, true; return nil }))
		require.NoError(t, lease.Complete(run))
		require.Regexp(t, " more$", store.Calls()[len(store.Calls())-1].Claim.Label)
	})
}

// As of a tick: the lease that runs the function leaves no marker, and another one does.
func TestHook_Label_ofALeaseWithoutAMarkerIsInTheMarkerOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		hook := guard.WithHook(guard.Hook{Label: func(context.Context) string { return "more" }})
		marker, lease := hold(t, g, "marker", guard.WithOnce(time.Hour), hook), hold(t, g, "k", hook)
		var run context.Context
		require.NoError(t, lease.Run(lease.Context(), func(ctx context.Context) error { run = ctx; return nil }))
		require.NoError(t, marker.Complete(run))
		require.Regexp(t, " more$", store.Calls()[len(store.Calls())-1].Claim.Label)
		require.NoError(t, lease.Release(t.Context()))
	})
}
