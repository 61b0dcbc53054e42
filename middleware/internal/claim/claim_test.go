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

func newGuard(t *testing.T, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(memory.New(), append(opts, guard.WithNamespace("test"))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

var errUnguarded = errors.New("unguarded")

func newCore(t *testing.T, g *guard.Guard, s claim.Settings) *claim.Core {
	t.Helper()
	s.Adapter, s.TTL, s.Unguarded = "watermill", 15*time.Second, errUnguarded
	c, err := claim.New(g, s)
	require.NoError(t, err)
	return c
}

// source returns the keys of a message: an empty one stands for a message that is not guarded.
func source(kind, key, once string) claim.Source {
	find := func(key string) func() (string, error) {
		return func() (string, error) {
			if key == "" {
				return "", errUnguarded
			}
			return key, nil
		}
	}
	return claim.Source{Kind: kind, Of: func() string { return "a message" }, Key: find(key), Once: find(once)}
}

func begin(t *testing.T, c *claim.Core, key, once string) *claim.Attempt {
	t.Helper()
	a := c.Begin(t.Context(), "work")
	require.NoError(t, a.Identify(source("work", key, once)))
	return &a
}

type handler = func(context.Context, *guard.Lease) error

func keep(record string) handler {
	return func(_ context.Context, marker *guard.Lease) error { return marker.SetRecord([]byte(record)) }
}

func never(context.Context, *guard.Lease) error { panic("it ran") }

func succeed(context.Context, *guard.Lease) error { return nil }

var ran = claim.Verdict{Result: claim.Ran}

func TestDo_findsTheRecordOfTheFirstRun(t *testing.T) {
	t.Parallel()
	for name, apart := range map[string]bool{"one key": false, "two keys": true} {
		c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour, Apart: apart})
		first := begin(t, c, "k", "o")
		require.Equal(t, ran, first.Do(t.Context(), 0, keep("first")), name)
		require.NotZero(t, first.Outcome.Fence)
		require.Equal(t, claim.Verdict{Result: claim.Done, Record: []byte("first")}, begin(t, c, "k", "o").Do(t.Context(), 0, never), name)
	}
}

// With two keys, either may be missing. If the first one is, the run has the lease of the marker.
func TestDo_holdsTheKeysThatThereAre(t *testing.T) {
	t.Parallel()
	c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour, Apart: true})
	require.Equal(t, ran, begin(t, c, "", "o").Do(t.Context(), 0, keep("first")))
	require.Equal(t, claim.Done, begin(t, c, "k", "o").Do(t.Context(), 0, never).Result)
	marked := func(_ context.Context, marker *guard.Lease) error { require.Nil(t, marker); return nil }
	for range 2 {
		require.Equal(t, ran, begin(t, c, "k", "").Do(t.Context(), 0, marked))
	}
	require.Empty(t, begin(t, c, "", "").Identity)
}

// A run that has not succeeded leaves the key free, and no marker.
func TestDo_leavesNoMarkerOfARunThatFailed(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, f := range map[string]func() error{
		"error":  func() error { return failed },
		"panic":  func() error { panic(failed) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour})
			a, ended := begin(t, c, "k", ""), make(chan claim.Verdict, 1)
			go func() {
				var v claim.Verdict
				defer func() { _ = recover(); ended <- v }()
				v = a.Do(context.Background(), 0, func(context.Context, *guard.Lease) error { return a.Call(f) })
			}()
			v := <-ended
			if name == "error" {
				require.Equal(t, claim.Verdict{Result: claim.Ran, Err: failed}, v)
			}
			require.Equal(t, name != "error", a.Outcome.Aborted)
			require.Equal(t, string(claim.Ran), a.Outcome.Result)
			require.Equal(t, ran, begin(t, c, "k", "").Do(t.Context(), 0, succeed))
		})
	}
}

func TestDo_saysWhyNothingRan(t *testing.T) {
	t.Parallel()
	g := newGuard(t)
	c := newCore(t, g, claim.Settings{})
	require.Equal(t, ran, begin(t, c, "k", "").Do(t.Context(), 0, func(context.Context, *guard.Lease) error {
		a := begin(t, c, "k", "")
		busy := a.Do(t.Context(), 10*time.Millisecond, never)
		require.Equal(t, claim.Busy, busy.Result)
		require.Positive(t, claim.Left(busy.Err))
		require.NotEmpty(t, a.Outcome.Label)
		require.ErrorIs(t, busy.Err, guard.ErrBusy)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		canceled := c.Begin(ctx, "work")
		require.NoError(t, canceled.Identify(source("work", "k", "")))
		require.Equal(t, claim.Canceled, canceled.Do(ctx, time.Hour, never).Result)
		require.Empty(t, canceled.Outcome.Skipped)
		return nil
	}))
	a := begin(t, c, "k", "")
	a.Identity = ""
	require.Equal(t, claim.Refused, a.Do(t.Context(), 0, never).Result, "no key")
	require.NoError(t, g.Close(t.Context()))
	require.Equal(t, claim.Unavailable, begin(t, c, "k", "").Do(t.Context(), 0, never).Result)
}

// A repeat that waits for its key holds that of the marker. It may not get to run.
func TestDo_tellsABusyRepeatFromARun(t *testing.T) {
	t.Parallel()
	for _, ofRepeat := range []bool{true, false} {
		c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour, Apart: true})
		held, other := "other key", "o"
		if !ofRepeat {
			held, other = "k", "other once"
		}
		require.Equal(t, ran, begin(t, c, held, other).Do(t.Context(), 0, func(context.Context, *guard.Lease) error {
			v := begin(t, c, "k", "o").Do(t.Context(), 0, never)
			require.Equal(t, claim.Busy, v.Result)
			require.Equal(t, ofRepeat, v.OfRepeat)
			return nil
		}))
	}
}

// Hooks count a message whose work did not run once: as a Skip or as an Outcome.
func TestDo_countsASkipOnce(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]claim.Settings{"no marker": {}, "one key": {Once: time.Hour}, "two keys": {Once: time.Hour, Apart: true}} {
		skips := 0
		g := newGuard(t, guard.WithHook(guard.Hook{
			Skip: func(_ context.Context, e guard.SkipEvent) {
				if e.Purpose != guard.PurposeAuxiliary {
					skips++
				}
			},
			Outcome: func(_ context.Context, o guard.Outcome) {
				if o.Skipped != "" {
					skips++
				}
			},
		}))
		c := newCore(t, g, s)
		require.Equal(t, ran, begin(t, c, "k", "o").Do(t.Context(), 0, func(context.Context, *guard.Lease) error {
			a := begin(t, c, "k", "o")
			a.Do(t.Context(), 0, never)
			a.Report()
			return nil
		}))
		require.Equal(t, 1, skips, "busy, %s", name)
		if s.Once > 0 {
			a := begin(t, c, "k", "o")
			a.Do(t.Context(), 0, never)
			a.Report()
			require.Equal(t, 2, skips, "done, %s", name)
		}
	}
}

func TestIdentify_keepsApartWhatIsNotTheSameWork(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t), map[string]bool{}
	identity := func(s claim.Settings, kind, key string) string {
		c := newCore(t, g, s)
		a := c.Begin(t.Context(), kind)
		require.NoError(t, a.Identify(source(kind, key, "")))
		return a.Identity
	}
	for _, s := range []claim.Settings{{}, {Group: "a"}, {Once: time.Hour}, {Once: time.Hour, Group: "a"}} {
		seen[identity(s, "a", "k")] = true
	}
	seen[identity(claim.Settings{}, "b", "k")], seen[identity(claim.Settings{}, "a", "l")] = true, true
	require.Len(t, seen, 6)
	require.Equal(t, identity(claim.Settings{Group: "a"}, "a", "k"), identity(claim.Settings{Group: "a"}, "b", "k"))
}

func TestIdentify_refusesOptionsOfAMessage(t *testing.T) {
	t.Parallel()
	for setting, opt := range map[string]guard.Option{"WithOnce": guard.WithOnce(time.Hour), "WithLimit": guard.WithLimit(2), "": guard.WithName("mine")} {
		c := newCore(t, newGuard(t), claim.Settings{Once: time.Hour})
		s, a := source("work", "k", ""), c.Begin(t.Context(), "work")
		s.Lease = func() []guard.Option { return []guard.Option{opt} }
		err := a.Identify(s)
		if setting == "" {
			require.NoError(t, err)
			require.Equal(t, "mine", a.Outcome.Name)
			continue
		}
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, setting, refused.Setting)
		require.ErrorContains(t, err, "guardwatermill: lease of a message: ")
	}
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
	newCore(t, newGuard(t), claim.Settings{Once: time.Hour, Apart: true, Lease: []guard.Option{guard.WithLimit(2)}})
}

func TestReport_namesTheWork(t *testing.T) {
	t.Parallel()
	var seen []guard.Outcome
	hook := guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { seen = append(seen, o) }})
	c := newCore(t, newGuard(t), claim.Settings{Lease: []guard.Option{hook}})
	for _, kind := range []string{"billing", "", "\xff", "a\x00b", string(make([]byte, 129))} {
		a := c.Begin(t.Context(), kind)
		a.Report()
	}
	for i, want := range []string{"billing", "watermill", "watermill", "watermill", "watermill"} {
		require.Equal(t, want, seen[i].Name)
	}
	require.Equal(t, "mine", newCore(t, newGuard(t), claim.Settings{Lease: []guard.Option{guard.WithName("mine")}}).Begin(t.Context(), "billing").Outcome.Name)
}

func TestPostpone_isAtMostAQuarterMore(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Hour} {
		c := newCore(t, newGuard(t), claim.Settings{Delay: given})
		for range 100 {
			d := c.Postpone(claim.Until(&guard.BusyError{Left: time.Hour}))
			require.GreaterOrEqual(t, d, want)
			require.LessOrEqual(t, d, want*5/4+time.Millisecond)
		}
	}
	require.Equal(t, claim.UnavailableDelay, claim.Until(guard.ErrStore))
}
