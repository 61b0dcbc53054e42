package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Each option of New that has no value is switched off for a call by the opposite one.
func TestOptions_canBeSwitchedOffForOneCall(t *testing.T) {
	inTimeOf(t, "WithFair", func(t *testing.T) {
		store := &fairStore{testStore: newTestStore()}
		queued := map[bool]int{}
		store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			queued[c.Queue.UsesQueue()]++
			return store.memory.TryAcquire(ctx, c)
		}
		g := newGuard(t, store, guard.WithFair())
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Second), guard.WithoutFair()))
		require.Equal(t, map[bool]int{false: 1}, queued)
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(time.Second)))
		require.Equal(t, map[bool]int{false: 1, true: 1}, queued)
	})
	inTimeOf(t, "WithoutRenewal", func(t *testing.T) {
		g := newGuard(t, newTestStore(), guard.WithoutRenewal(), guard.WithTTL(ttl))
		require.NoError(t, g.Do(t.Context(), "k", sleeping(3*ttl), guard.WithRenewal()))
		require.ErrorIs(t, g.Do(t.Context(), "k", sleeping(3*ttl)), guard.ErrLost)
	})
}

func TestCheck_returnsTheErrorOfDo(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		require.NoError(t, g.Check("k", guard.WithWait(time.Second)))
		_ = as[*guard.KeyError](t, g.Check(""))
		for setting, opts := range map[string][]guard.Option{
			"WithTTL": {guard.WithTTL(-1)}, "Option": {nil}, "WithOnce": {guard.WithOnce(time.Hour), guard.WithLimit(2)},
		} {
			err := g.Check("k", opts...)
			require.Equal(t, setting, as[*guard.SettingError](t, err, setting).Setting)
			require.Equal(t, err, g.Do(t.Context(), "k", nothing, opts...))
		}
		require.Zero(t, store.count(driver.OpAcquire), "nothing asked the store")
	})
}

// ValidUntil is the instant at which the context would end.
func TestValidUntil_isTheEndOfTheLeaseUnlessItIsRenewed(t *testing.T) {
	for name, c := range map[string]struct {
		opts []guard.Option
		most time.Duration // from the grant
	}{
		"TTL":              {nil, ttl},
		"with a margin":    {[]guard.Option{guard.WithMargin(time.Second)}, ttl - time.Second},
		"with a max. hold": {[]guard.Option{guard.WithMaxHold(3 * time.Second)}, 3 * time.Second},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, _ *testStore) {
			start := time.Now()
			lease := hold(t, g, "k", append(c.opts, guard.WithoutRenewal())...)
			until := lease.ValidUntil()
			require.WithinRange(t, until, start.Add(c.most-ttl/50), start.Add(c.most))
			<-lease.Context().Done()
			require.WithinRange(t, time.Now(), until.Add(-50*time.Millisecond), until)
			require.Zero(t, lease.ValidUntil(), "it has ended")
			_ = lease.Release(t.Context())
		})
	}
}

func TestValidUntil_movesWithRenewalsAndEndsWithTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		lease := hold(t, g, "k")
		for range 20 {
			time.Sleep(ttl / 4)
			require.Greater(t, time.Until(lease.ValidUntil()), ttl/3)
		}
		require.NoError(t, lease.Release(t.Context()))
		require.Zero(t, lease.ValidUntil())
	})
}

func TestValidUntil_ofSeveralKeysIsTheEarliest(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.NoError(t, g.Do(t.Context(), "a", func(ctx context.Context) error {
			outer, _ := guard.FromContext(ctx)
			return g.DoAll(ctx, []string{"a", "b"}, func(ctx context.Context) error {
				inner, _ := guard.FromContext(ctx)
				require.Equal(t, outer.ValidUntil(), inner.ValidUntil())
				return nil
			})
		}, guard.WithMaxHold(2*time.Second)))
	})
}

// A window of an inner call would be silently lost: nobody leaves its marker.
func TestDo_insideOfDoRefusesAWindowThatTheLeaseDoesNotHave(t *testing.T) {
	for name, c := range map[string]struct {
		outer, inner []guard.Option
		refused      string
	}{
		"no window at all":      {nil, nil, ""},
		"that of the lease":     {[]guard.Option{guard.WithOnce(time.Hour)}, []guard.Option{guard.WithOnce(time.Hour)}, ""},
		"a window only outside": {[]guard.Option{guard.WithOnce(time.Hour)}, nil, ""},
		"a window only inside":  {nil, []guard.Option{guard.WithOnce(time.Hour)}, "WithOnce"},
		"a period only inside":  {nil, []guard.Option{guard.WithOncePer(time.Hour)}, "WithOncePer"},
		"another window":        {[]guard.Option{guard.WithOnce(time.Hour)}, []guard.Option{guard.WithOnce(time.Minute)}, "WithOnce"},
		"a window and a period": {[]guard.Option{guard.WithOnce(9 * time.Hour)}, []guard.Option{guard.WithOncePer(10 * time.Hour)}, "WithOncePer"},
		"switched off inside":   {[]guard.Option{guard.WithOnce(time.Hour)}, []guard.Option{guard.WithOnce(0)}, ""},
	} {
		inBubbleOf(t, name, func(t *testing.T, g *guard.Guard, _ *testStore) {
			ran := false
			err := g.Do(t.Context(), "k", func(ctx context.Context) error {
				return g.Do(ctx, "k", func(context.Context) error { ran = true; return nil }, c.inner...)
			}, c.outer...)
			if c.refused == "" {
				require.NoError(t, err)
				require.True(t, ran)
				return
			}
			require.Equal(t, c.refused, as[*guard.SettingError](t, err).Setting)
			require.ErrorContains(t, err, `"k"`)
			require.False(t, ran)
		})
	}
}
