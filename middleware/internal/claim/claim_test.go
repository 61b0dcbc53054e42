package claim_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/claim"
)

func newGuard(t *testing.T) *guard.Guard {
	t.Helper()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

func newCore(t *testing.T, g *guard.Guard, s claim.Settings) *claim.Core {
	t.Helper()
	s.Adapter, s.TTL = "watermill", 15*time.Second
	c, err := claim.New(g, s)
	require.NoError(t, err)
	return c
}

func keep(record string) func(context.Context, *guard.Lease) error {
	return func(_ context.Context, l *guard.Lease) error { return l.SetRecord([]byte(record)) }
}

func TestDo_findsTheRecordOfTheFirstRun(t *testing.T) {
	t.Parallel()
	c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour})
	require.Equal(t, claim.Verdict{}, c.Do(t.Context(), "k", "work", 0, keep("first")))
	v := c.Do(t.Context(), "k", "work", 0, keep("second"))
	require.Equal(t, claim.Done, v.Result)
	require.Equal(t, "first", string(v.Record))
	require.NoError(t, v.Err)
}

// A run that has not succeeded leaves the key free, and no marker.
func TestDo_leavesNoMarkerOfARunThatFailed(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, f := range map[string]func(context.Context, *guard.Lease) error{
		"error":  func(context.Context, *guard.Lease) error { return failed },
		"panic":  func(context.Context, *guard.Lease) error { panic(failed) },
		"goexit": func(context.Context, *guard.Lease) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour})
			ended := make(chan claim.Verdict, 1)
			go func() {
				var v claim.Verdict
				defer func() { _ = recover(); ended <- v }()
				v = c.Do(context.Background(), "k", "work", 0, f)
			}()
			if v := <-ended; name == "error" {
				require.Equal(t, claim.Verdict{Err: failed}, v)
			}
			require.Equal(t, claim.Verdict{}, c.Do(t.Context(), "k", "work", 0, keep("second")))
		})
	}
}

func TestDo_saysWhyNothingRan(t *testing.T) {
	t.Parallel()
	g := newGuard(t)
	c := newCore(t, g, claim.Settings{})
	never := func(context.Context, *guard.Lease) error { panic("it ran") }
	v := c.Do(t.Context(), "k", "work", 0, func(context.Context, *guard.Lease) error {
		busy := c.Do(t.Context(), "k", "work", 10*time.Millisecond, never)
		require.Equal(t, claim.Busy, busy.Result)
		require.Positive(t, busy.Left)
		require.NotEmpty(t, busy.Label)
		require.ErrorIs(t, busy.Err, guard.ErrBusy)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, claim.Canceled, c.Do(ctx, "k", "work", time.Hour, never).Result)
		return nil
	})
	require.Equal(t, claim.Ran, v.Result)
	require.Equal(t, claim.Refused, c.Do(t.Context(), "", "work", 0, never).Result, "no key")
	require.NoError(t, g.Close(t.Context()))
	require.Equal(t, claim.Unavailable, c.Do(t.Context(), "k", "work", 0, never).Result)
}

func TestIdentity_keepsApartWhatIsNotTheSameWork(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t), map[string]bool{}
	for _, s := range []claim.Settings{{}, {Group: "a"}, {Once: time.Hour}, {Once: time.Hour, Group: "a"}} {
		seen[newCore(t, g, s).Identity("a", "k")] = true
	}
	c := newCore(t, g, claim.Settings{})
	seen[c.Identity("b", "k")], seen[c.Identity("a", "l")] = true, true
	require.Len(t, seen, 6)
	grouped := newCore(t, g, claim.Settings{Group: "a"})
	require.Equal(t, grouped.Identity("a", "k"), grouped.Identity("b", "k"))
}

func TestNew_namesEachSettingThatCannotWork(t *testing.T) {
	t.Parallel()
	for setting, opts := range map[string][]guard.Option{
		"WithWait": {guard.WithWait(time.Second)}, "WithOnce": {guard.WithOnce(time.Hour)}, "WithOwner": {guard.WithOwner("me")},
		"WithLimit": {guard.WithLimit(2)}, "WithShared": {guard.WithShared()}, "WithNamespace": {guard.WithNamespace("x")}, "WithTTL": {guard.WithTTL(-1)},
	} {
		_, err := claim.New(newGuard(t), claim.Settings{Adapter: "watermill", TTL: time.Second, Once: time.Hour, Lease: opts})
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused, setting)
		require.Equal(t, setting, refused.Setting)
	}
	_, err := claim.New(nil, claim.Settings{})
	require.ErrorContains(t, err, "guard")
	newCore(t, newGuard(t), claim.Settings{Lease: []guard.Option{guard.WithLimit(2)}})
}

func TestReport_namesTheWork(t *testing.T) {
	t.Parallel()
	var seen []guard.Outcome
	hook := guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { seen = append(seen, o) }})
	c := newCore(t, newGuard(t), claim.Settings{Lease: []guard.Option{hook}})
	for _, kind := range []string{"billing", "", "\xff"} {
		c.Report(t.Context(), c.Begin(kind))
	}
	require.Len(t, seen, 3)
	require.Equal(t, []string{"billing", "watermill", "watermill"}, []string{seen[0].Name, seen[1].Name, seen[2].Name})
	require.Equal(t, "mine", newCore(t, newGuard(t), claim.Settings{Lease: []guard.Option{guard.WithName("mine")}}).Begin("billing").Name)
}
