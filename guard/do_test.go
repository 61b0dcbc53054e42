package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestDo_runsUnderALease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ran := false
		err := g.Do(t.Context(), "report", func(ctx context.Context) error {
			ran = true
			lease, ok := guard.FromContext(ctx)
			require.True(t, ok)
			require.Equal(t, "report", lease.Key())
			require.Equal(t, "nightly", lease.Name())
			require.True(t, lease.Valid())
			require.Positive(t, lease.Fence())
			require.Equal(t, lease.Fence(), guard.Fence(ctx))
			require.False(t, store.free("report"))
			return nil
		}, guard.WithName("nightly"))
		require.NoError(t, err)
		require.True(t, ran)
		require.True(t, store.free("report"))
		require.Equal(t, 1, store.count(driver.OpAcquire), "an uncontended run makes one call to acquire")
		require.Equal(t, 1, store.count(driver.OpRelease), "and one call to release")
	})
}

func TestDo_endsTheContextOfItsRunWithErrReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var run context.Context
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error { run = ctx; return nil }))
		require.ErrorIs(t, context.Cause(run), guard.ErrReleased)
		lease, ok := guard.FromContext(run)
		require.True(t, ok)
		require.False(t, lease.Valid())
	})
}

func TestDo_busyErrorNamesTheHolderAndTheTimeLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		lease := hold(t, g, "report", guard.WithLabel("web-1"))
		time.Sleep(time.Second)
		err := g.Do(t.Context(), "report", func(context.Context) error { t.Error("ran twice"); return nil })
		busy := as[*guard.BusyError](t, err)
		require.Equal(t, &guard.BusyError{Key: "report", Left: ttl - time.Second, Label: "web-1"}, busy)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, g.Do(t.Context(), "report", nothing))
	})
}

func TestName_isThatOfTheCallOrOfTheGuard(t *testing.T) {
	g := openGuard(t, memory.New(), guard.WithName("nightly"))
	require.Equal(t, "nightly", g.Adapter().Name())
	require.Equal(t, "hourly", g.Adapter().Name(guard.WithName("hourly")))
	require.Equal(t, "nightly", g.Adapter().Name(guard.WithTTL(time.Hour)))
}

func TestSetRecord_refusesALongRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		once := guard.WithOnce(time.Hour)
		longest := make([]byte, guard.MaxRecord)
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			require.NoError(t, lease.SetRecord(longest))
			refused := as[*guard.SettingError](t, lease.SetRecord(append(longest, 0)))
			require.Equal(t, "guard: SetRecord(1048577 bytes): must be at most 1048576 bytes", refused.Error())
			return nil
		}, once))
		require.Len(t, as[*guard.DoneError](t, g.Do(t.Context(), "k", nothing, once)).Record, guard.MaxRecord, "the earlier record stays")
	})
}

func TestDo_withOnceKeepsRepeatsOutForTheWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		once := guard.WithOnce(time.Hour)
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			require.NoError(t, lease.SetRecord([]byte("the answer")))
			return nil
		}, once, guard.WithLabel("web-1"), guard.WithName("report")))
		at := time.Now()
		time.Sleep(time.Hour - time.Millisecond)
		err := g.Do(t.Context(), "k", func(context.Context) error { t.Error("ran twice"); return nil }, once)
		done := as[*guard.DoneError](t, err)
		require.True(t, done.At.Equal(at), "%v is not %v", done.At, at)
		done.At = time.Time{}
		require.Equal(t, &guard.DoneError{Key: "k", Left: time.Millisecond, Record: []byte("the answer"), Label: "web-1", Name: "report"}, done)
		time.Sleep(time.Millisecond)
		require.NoError(t, g.Do(t.Context(), "k", nothing, once))
	})
}

func TestDo_withMinHoldKeepsTheKeyBusyHoweverSoonTheRunEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.Error(t, g.Do(t.Context(), "k", func(context.Context) error {
			time.Sleep(time.Second)
			return errors.New("failed")
		}, guard.WithMinHold(time.Minute)))
		require.Equal(t, 59*time.Second, as[*guard.BusyError](t, g.Do(t.Context(), "k", nothing)).Left, "counted from the grant")
		time.Sleep(59 * time.Second)
		require.NoError(t, g.Do(t.Context(), "k", nothing))
	})
}

func TestDo_markerLastsForTheLongerOfWindowAndMinHold(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithOnce(time.Second), guard.WithMinHold(time.Minute)))
		require.Equal(t, time.Minute, as[*guard.DoneError](t, g.Do(t.Context(), "k", nothing)).Left)
	})
}

func TestDo_releasesAndPropagatesAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		cause := errors.New("cause")
		for _, name := range []string{"Do", "DoAll"} {
			require.PanicsWithError(t, "cause", func() {
				_ = underLeases[name](g, t.Context(), func(context.Context) error { panic(cause) })
			}, name)
			require.True(t, store.free("a") && store.free("b"), name)
		}
	})
}

func TestWrap_runsOnceAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var inner error
		var job func(context.Context) error
		job, err := g.Wrap("k", func(context.Context) error {
			if inner == nil {
				inner = job(t.Context())
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, job(t.Context()))
		require.ErrorIs(t, inner, guard.ErrBusy)
	})
}

func TestDoValue_returnsTheValue(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		n, err := guard.DoValue(t.Context(), g, "k", func(context.Context) (int, error) { return 42, nil }, guard.WithOnce(time.Hour))
		require.NoError(t, err)
		require.Equal(t, 42, n)
		n, err = guard.DoValue(t.Context(), g, "k", func(context.Context) (int, error) { return 43, nil })
		require.ErrorIs(t, err, guard.ErrDone)
		require.Zero(t, n)
	})
}

func TestOptions_badValuesAreRefusedByName(t *testing.T) {
	bad := map[string]struct {
		opts    []guard.Option
		setting string
		says    string
	}{
		"TTL too short":      {[]guard.Option{guard.WithTTL(99 * time.Millisecond)}, "WithTTL", "100ms"},
		"TTL negative":       {[]guard.Option{guard.WithTTL(-time.Second)}, "WithTTL", "100ms"},
		"TTL without end":    {[]guard.Option{guard.WithTTL(guard.Forever)}, "WithTTL", "ten years"},
		"wait negative":      {[]guard.Option{guard.WithWait(-1)}, "WithWait", "negative"},
		"window without end": {[]guard.Option{guard.WithOnce(guard.Forever)}, "WithOnce", "ten years"},
		"window negative":    {[]guard.Option{guard.WithOnce(-time.Hour)}, "WithOnce", "negative"},
		"min hold negative":  {[]guard.Option{guard.WithMinHold(-1)}, "WithMinHold", "negative"},
		"max hold negative":  {[]guard.Option{guard.WithMaxHold(-1)}, "WithMaxHold", "negative"},
		"min over max":       {[]guard.Option{guard.WithMinHold(2 * time.Hour), guard.WithMaxHold(time.Hour)}, "WithMinHold", "WithMaxHold(1h0m0s)"},
		"name long":          {[]guard.Option{guard.WithName(strings.Repeat("n", 129))}, "WithName", "128"},
		"name not UTF-8":     {[]guard.Option{guard.WithName("n\xff")}, "WithName", "UTF-8"},
		"namespace colon":    {[]guard.Option{guard.WithNamespace("a:b")}, "WithNamespace", "must not contain"},
		"namespace brace":    {[]guard.Option{guard.WithNamespace("{a}")}, "WithNamespace", "must not contain"},
		"owner NUL":          {[]guard.Option{guard.WithOwner("a\x00")}, "WithOwner", "must not contain"},
		"label long":         {[]guard.Option{guard.WithLabel(strings.Repeat("l", 513))}, "WithLabel", "512"},
		"nil option":         {[]guard.Option{nil}, "Option", "nil"},
		"two bad values":     {[]guard.Option{guard.WithTTL(1), guard.WithWait(-1)}, "WithTTL", "100ms"},
	}
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := guard.New(memory.New(), c.opts...)
			refused := as[*guard.SettingError](t, err)
			require.Equal(t, c.setting, refused.Setting)
			require.ErrorContains(t, err, c.setting)
			require.ErrorContains(t, err, c.says)

			g := openGuard(t, memory.New())
			ran := func(context.Context) error { t.Error("ran"); return nil }
			require.ErrorAs(t, g.Do(t.Context(), "k", ran, c.opts...), &refused)
			_, err = g.Acquire(t.Context(), "k", c.opts...)
			require.ErrorAs(t, err, &refused)
			_, err = g.Wrap("k", ran, c.opts...)
			require.ErrorAs(t, err, &refused)
		})
	}
}

func TestOptions_minHoldIsCheckedAgainstTheMaxHoldOfNew(t *testing.T) {
	g := openGuard(t, memory.New(), guard.WithMaxHold(time.Minute))
	require.ErrorContains(t, g.Do(t.Context(), "k", nothing, guard.WithMinHold(time.Hour)), "WithMinHold(1h0m0s)")
}

func TestNew_refusesANilLocker(t *testing.T) {
	for name, locker := range map[string]guard.Locker{"nil": nil, "nil pointer": (*memory.Locker)(nil)} {
		t.Run(name, func(t *testing.T) {
			_, err := guard.New(locker)
			require.Equal(t, "locker", as[*guard.SettingError](t, err).Setting)
		})
	}
}

// unfit is a Locker with settings that cannot work.
type unfit struct{ guard.Locker }

func (unfit) Describe() driver.Description {
	return driver.Description{Err: &guard.SettingError{Setting: "client", Reason: "is unfit"}}
}

func TestNew_checksTheLocker(t *testing.T) {
	_, err := guard.New(driver.Wrapper{Locker: unfit{memory.New()}})
	require.ErrorContains(t, err, "client: is unfit")
}

func TestDo_refusesANilFunction(t *testing.T) {
	g := openGuard(t, memory.New())
	refused := as[*guard.SettingError](t, g.Do(t.Context(), "k", nil))
	_, err := g.Wrap("k", nil)
	require.ErrorAs(t, err, &refused)
	_, err = guard.DoValue[int](t.Context(), g, "k", nil)
	require.ErrorAs(t, err, &refused)
}

func TestKeys_thatCannotBeUsedAreRefused(t *testing.T) {
	bad := map[string]struct{ key, says string }{
		"empty": {"", "is empty"},
		"long":  {strings.Repeat("k", 1025), "1024 bytes"},
		"NUL":   {"a\x00b", "NUL"},
		"open":  {"a{b", "brace"},
		"close": {"a}b", "brace"},
	}
	g := openGuard(t, memory.New())
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			err := g.Do(t.Context(), c.key, func(context.Context) error { t.Error("ran"); return nil })
			refused := as[*guard.KeyError](t, err)
			require.ErrorContains(t, err, c.says)
			require.Less(t, len(err.Error()), 200, "the message shortens a long key")
			_, err = g.Wrap(c.key, nothing)
			require.ErrorAs(t, err, &refused)
		})
	}
	longest := strings.Repeat("k", 1024)
	require.NoError(t, g.Do(t.Context(), longest, nothing))
	require.ErrorContains(t, g.Do(t.Context(), longest, nothing, guard.WithNamespace("n")), "longer than 1024 bytes")
	require.ErrorContains(t, g.Do(t.Context(), "", nothing, guard.WithNamespace("n")), "is empty")
	require.NoError(t, g.Do(t.Context(), "spaces, ünïcode: and\nlines", nothing))
}

// anyKey is a Locker with its own rules for keys.
type anyKey struct{ guard.Locker }

func (anyKey) Describe() driver.Description {
	return driver.Description{CheckKey: driver.CheckKeyBytes}
}

func TestKeys_areCheckedByTheLockersOwnRules(t *testing.T) {
	g := openGuard(t, anyKey{memory.New()})
	require.NoError(t, g.Do(t.Context(), "a{b}", nothing))
	require.Error(t, g.Do(t.Context(), "", nothing))
}

func TestDiscardMarker_leavesNoMarker(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		once := guard.WithOnce(time.Hour)
		discard := func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			lease.DiscardMarker()
			return nil
		}
		require.NoError(t, g.Do(t.Context(), "k", discard, once))
		require.True(t, store.free("k"))
		lease := hold(t, g, "k", once)
		lease.DiscardMarker()
		require.NoError(t, lease.Complete(t.Context()))
		require.True(t, store.free("k"))

		store.failReleasesFor(time.Minute)
		require.NoError(t, g.Do(t.Context(), "k", discard, once), "no marker can be missing, so the failed release is no error")
		time.Sleep(2 * time.Minute)
	})
}
