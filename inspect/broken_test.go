package inspect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// A broken holder learns who broke its lease, and why, however it finds out. The operator sees
// whose lease it was.
func TestBreak_leavesATraceOfTheOperatorAndTheFormerHolder(t *testing.T) {
	untilTheEnd := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	soon := func(context.Context) error { time.Sleep(time.Second); return nil }
	runs := map[string]func(ctx context.Context, g *guard.Guard) error{
		"renewal": func(ctx context.Context, g *guard.Guard) error { return g.Do(ctx, "report", untilTheEnd) },
		"release": func(ctx context.Context, g *guard.Guard) error { return g.Do(ctx, "report", soon) },
		"done marker": func(ctx context.Context, g *guard.Guard) error {
			return g.Do(ctx, "report", soon, guard.WithOnce(time.Hour))
		},
		"nested run": func(ctx context.Context, g *guard.Guard) error {
			return g.Do(ctx, "report", func(ctx context.Context) error { return g.Do(ctx, "report", untilTheEnd) })
		},
		"several keys": func(ctx context.Context, g *guard.Guard) error {
			return g.DoAll(ctx, []string{"a", "report", "z"}, untilTheEnd)
		},
		"several keys released": func(ctx context.Context, g *guard.Guard) error {
			return g.DoAll(ctx, []string{"a", "report", "z"}, soon)
		},
		"limit": func(ctx context.Context, g *guard.Guard) error {
			return g.Do(ctx, "report", untilTheEnd, guard.WithLimit(3))
		},
		"lease": func(ctx context.Context, g *guard.Guard) error {
			lease, err := g.Acquire(ctx, "report")
			if err != nil {
				return err
			}
			_ = soon(ctx)
			return lease.Release(ctx)
		},
		"lease that was lost": func(ctx context.Context, g *guard.Guard) error {
			lease, err := g.Acquire(ctx, "report")
			if err != nil {
				return err
			}
			<-lease.Context().Done()
			return lease.Complete(ctx)
		},
	}
	for name, run := range runs {
		for _, now := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", now"}[now], func(t *testing.T) {
				onSite(t, func(t *testing.T, s *site) {
					losses := make(chan guard.LossEvent, 10)
					ctx := t.Context()
					result := make(chan error, 1)
					g, err := guard.New(s.store, guard.WithTTL(ttl), guard.WithNamespace("shop"), guard.WithLabel("worker 2"),
						guard.WithHook(guard.Hook{Loss: func(_ context.Context, e guard.LossEvent) { losses <- e }}))
					require.NoError(t, err)
					go func() { result <- run(ctx, g) }()
					time.Sleep(time.Millisecond)
					h := s.show(t, "report").Holders[0]
					breaks := s.inspector.Break
					if now {
						breaks = s.inspector.BreakNow
					}
					broken, err := breaks(ctx, "report", h.ID, alice)
					require.NoError(t, err)
					require.True(t, broken)

					k := s.show(t, "report")
					if now {
						require.Equal(t, driver.KeyFree, k.State())
					} else {
						require.True(t, k.Holders[0].Broken())
						require.Equal(t, "broken by alice: it hangs; was worker 2", k.Holders[0].Label)
					}
					o, err := s.inspector.LastOperation(ctx, "report")
					require.NoError(t, err)
					require.Equal(t, "worker 2", o.Holder)
					require.Equal(t, h.Fence, o.Fence)
					require.Equal(t, h.ID, o.ID)

					err = <-result
					var lost *guard.LostError
					require.ErrorAs(t, err, &lost)
					require.Equal(t, guard.LossNotHeld, lost.Reason)
					require.Equal(t, "broken by alice: it hangs", lost.Broken)
					require.ErrorContains(t, err, `not_held: "broken by alice: it hangs"`)
					require.ErrorAs(t, (<-losses).Err, &lost)
					require.Equal(t, "broken by alice: it hangs", lost.Broken)
					require.NoError(t, g.Close(ctx))
				}, guard.WithNamespace("shop"))
			})
		}
	}
}

// A lease that was lost in another way was not broken by anyone, although another lease was.
func TestBreak_explainsNoOtherLoss(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		broken, err := s.here.Acquire(ctx, "report")
		require.NoError(t, err)
		_, err = s.inspector.BreakNow(ctx, "report", broken.ID(), alice)
		require.NoError(t, err)
		forgotten, err := s.here.Acquire(ctx, "report")
		require.NoError(t, err)
		held, err := s.store.Release(ctx, forgotten.Claims()[0], driver.After{})
		require.NoError(t, err)
		require.True(t, held)

		var lost *guard.LostError
		require.ErrorAs(t, forgotten.Release(ctx), &lost)
		require.Equal(t, guard.LossNotHeld, lost.Reason)
		require.Empty(t, lost.Broken)
		require.ErrorAs(t, broken.Release(ctx), &lost)
		require.Equal(t, "broken by alice: it hangs", lost.Broken)
	})
}

// A minimum hold is not a broken lease.
func TestBroken_isNotAMinimumHold(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		_, err := s.inspector.Hold(t.Context(), "report", time.Hour, alice)
		require.NoError(t, err)
		h := s.show(t, "report").Holders[0]
		require.True(t, h.Kept)
		require.False(t, h.Broken())
	})
}

// The label of a break never exceeds what a store takes: the former holder's is left out first.
func TestBreak_withLongLabels(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		long := strings.Repeat("x", 300)
		lease, err := s.here.Acquire(t.Context(), "report", guard.WithLabel(long))
		require.NoError(t, err)
		broken, err := s.inspector.Break(t.Context(), "report", lease.ID(), inspect.By{Actor: "alice", Reason: long})
		require.NoError(t, err)
		require.True(t, broken)
		require.Equal(t, "broken by alice: "+long, s.show(t, "report").Holders[0].Label)
		var lost *guard.LostError
		require.ErrorAs(t, lease.Release(t.Context()), &lost)
		require.Equal(t, "broken by alice: "+long, lost.Broken)
	})
}
