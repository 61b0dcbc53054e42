package guard_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func TestCandidate_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	lead := func(context.Context) error { return nil }
	for setting, opt := range map[string]guard.Option{
		"WithOnce": guard.WithOnce(time.Hour), "WithOncePer": guard.WithOncePer(time.Hour),
		"WithOwner": guard.WithOwner("me"), "WithOwnerFrom": guard.WithOwnerFrom(func(string) string { return "me" }),
		"WithLimit": guard.WithLimit(2), "WithShared": guard.WithShared(), "WithoutRenewal": guard.WithoutRenewal(),
		"WithWait": guard.WithWait(time.Second), "WithTTL": guard.WithTTL(0), "Option": nil,
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			var refused *guard.SettingError
			g := openGuard(t, memory.New())
			err := g.Lead(t.Context(), "leader", lead, opt)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, setting, refused.Setting)

			switch setting {
			case "WithTTL", "Option": // New refuses it
				return
			case "WithWait": // is for calls that do not lead
				g, err = guard.New(memory.New(), opt)
				require.NoError(t, err)
				_, err = g.Candidate("leader", lead)
				require.NoError(t, err)
				return
			}
			g, err = guard.New(memory.New(), opt)
			require.NoError(t, err)
			_, err = g.Candidate("leader", lead)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, setting, refused.Setting, "of New")
		})
	}
	g := openGuard(t, memory.New(), guard.WithOnce(time.Hour))
	_, err := g.Candidate("leader", lead, guard.WithOnce(0))
	require.NoError(t, err, "off")
	var key *guard.KeyError
	_, err = g.Candidate("", lead, guard.WithOnce(0))
	require.ErrorAs(t, err, &key)
	_, err = g.Candidate("leader", nil)
	require.ErrorContains(t, err, "f: must not be nil")
}

// A done marker of another call keeps candidates away until it ends, and hooks say why.
func TestCandidate_waitsForADoneMarker(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.NoError(t, g.Do(t.Context(), "leader", nothing, guard.WithOnce(time.Hour)))
		start, done := time.Now(), 0
		require.NoError(t, g.Lead(t.Context(), "leader", func(context.Context) error {
			return guard.ErrStopLeading
		}, guard.WithHook(guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
			if errors.Is(e.Err, guard.ErrDone) {
				done++
			}
		}})))
		require.WithinRange(t, time.Now(), start.Add(time.Hour), start.Add(time.Hour+time.Minute))
		require.GreaterOrEqual(t, done, 60, "each campaign is reported")
	})
}

// The TTL of a leader is shorter than that of other work, unless New or the call sets it.
func TestCandidate_ttl(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		of, call []guard.Option
		want     time.Duration
	}{
		"default":     {want: 15 * time.Second},
		"of New":      {of: []guard.Option{guard.WithTTL(time.Minute)}, want: time.Minute},
		"of the call": {of: []guard.Option{guard.WithTTL(time.Minute)}, call: []guard.Option{guard.WithTTL(time.Second)}, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := openGuard(t, memory.New(), row.of...)
			err := g.Lead(t.Context(), "leader", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				require.Equal(t, row.want, lease.Claims()[0].TTL)
				return guard.ErrStopLeading
			}, row.call...)
			require.NoError(t, err)
		})
	}
}

// An error that asking again cannot help ends the first campaign. After a term, it may be an
// operator's mistake that is corrected soon.
func TestCandidate_permanentErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		kind driver.StoreErrorKind
		led  bool
		over bool
	}{
		"before the first term": {driver.KindAuth, false, true},
		"later":                 {driver.KindAuth, true, false},
		"client was closed":     {driver.KindClosed, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
				var refuses atomic.Bool
				refuses.Store(!row.led)
				store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
					if refuses.Load() {
						return driver.Answer{}, guardtest.Fail(row.kind)
					}
					return driver.Answer{}, guardtest.ErrUnscripted
				}
				terms := 0
				time.AfterFunc(10*time.Minute, func() { refuses.Store(false) })
				err := g.Lead(t.Context(), "leader", func(context.Context) error {
					if terms++; terms == 2 {
						return guard.ErrStopLeading
					}
					refuses.Store(true)
					return nil
				})
				if row.over {
					require.ErrorIs(t, err, guard.ErrStore)
					require.Equal(t, row.led, guard.Ran(err))
					return
				}
				require.NoError(t, err)
				require.Equal(t, 2, terms)
			})
		})
	}
}
