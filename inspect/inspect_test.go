package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

const ttl = 9 * time.Second

var alice = inspect.By{Actor: "alice", Reason: "it hangs"}

// A site is a store with two processes, and an Inspector in the second one.
type site struct {
	store       *memory.Locker
	here, there *guard.Guard
	inspector   *inspect.Inspector
	outcomes    []guard.Outcome // that the hooks of the second one have received
}

// onSite runs f in virtual time.
func onSite(t *testing.T, f func(t *testing.T, s *site), opts ...guard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		s := &site{store: store}
		start := func(more ...guard.Option) *guard.Guard {
			g, err := guard.New(store, slices.Concat([]guard.Option{guard.WithNamespace("test"), guard.WithTTL(ttl)}, opts, more)...)
			require.NoError(t, err)
			return g
		}
		s.here = start(guard.WithLabel("worker 1"))
		s.there = start(guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { s.outcomes = append(s.outcomes, o) }}))
		var err error
		s.inspector, err = inspect.New(s.there)
		require.NoError(t, err)
		f(t, s)
		require.NoError(t, s.here.Close(t.Context()))
		require.NoError(t, s.there.Close(t.Context()))
	})
}

func (s *site) show(t *testing.T, key string) inspect.Key {
	t.Helper()
	k, err := s.inspector.Show(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, key, k.Name)
	return k
}

// A stuck run is broken. Its context ends before another run begins.
func TestBreak_endsTheRunBeforeAnotherBegins(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		began := time.Now()
		var ended atomic.Pointer[time.Time]
		result := make(chan error)
		go func() {
			result <- s.here.Do(t.Context(), "report", func(ctx context.Context) error {
				<-ctx.Done()
				ended.Store(new(time.Now()))
				return nil
			})
		}()
		time.Sleep(10 * time.Minute)
		k := s.show(t, "report")
		require.Equal(t, driver.KeyHeld, k.State())
		require.Len(t, k.Holders, 1)
		h := k.Holders[0]
		require.Equal(t, "worker 1", h.Label)
		require.WithinDuration(t, began, h.Since(), time.Second)
		require.Equal(t, 10*time.Minute, k.Time.Sub(h.Since()).Round(time.Second))

		broken, err := s.inspector.Break(t.Context(), "report", h.ID, alice)
		require.NoError(t, err)
		require.True(t, broken)
		asked := time.Now()
		err = s.there.Do(t.Context(), "report", func(context.Context) error { return nil })
		var busy *guard.BusyError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, "broken by alice: it hangs; was worker 1", busy.Label)
		require.Equal(t, driver.KeyKept, new(s.show(t, "report")).State())

		err = s.there.Do(t.Context(), "report", func(context.Context) error {
			require.NotNil(t, ended.Load())
			return nil
		}, guard.WithWait(time.Minute))
		require.NoError(t, err)
		require.ErrorIs(t, <-result, guard.ErrLost)
		require.LessOrEqual(t, ended.Load().Sub(asked), ttl/3+time.Second)
		require.LessOrEqual(t, time.Since(asked), ttl+time.Second)
	})
}

func TestBreak_hitsNoLaterHolder(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		first, err := s.here.Acquire(t.Context(), "report")
		require.NoError(t, err)
		id := s.show(t, "report").Holders[0].ID
		require.Equal(t, first.ID(), id)
		require.NoError(t, first.Release(t.Context()))
		second, err := s.here.Acquire(t.Context(), "report")
		require.NoError(t, err)
		for _, f := range []func(context.Context, string, string, inspect.By) (bool, error){s.inspector.Break, s.inspector.BreakNow} {
			broken, err := f(t.Context(), "report", id, alice)
			require.NoError(t, err)
			require.False(t, broken)
		}
		time.Sleep(ttl)
		require.True(t, second.Valid())
		require.NoError(t, second.Release(t.Context()))
	})
}

func TestBreakNow_freesTheKeyAtOnce(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		stuck, err := s.here.Acquire(t.Context(), "report")
		require.NoError(t, err)
		broken, err := s.inspector.BreakNow(t.Context(), "report", stuck.ID(), alice)
		require.NoError(t, err)
		require.True(t, broken)
		next, err := s.there.Acquire(t.Context(), "report")
		require.NoError(t, err)
		require.Greater(t, next.Fence(), stuck.Fence())
		<-stuck.Context().Done()
		require.ErrorIs(t, context.Cause(stuck.Context()), guard.ErrLost)
		require.True(t, next.Valid())
		require.NoError(t, next.Release(t.Context()))
		require.ErrorIs(t, stuck.Release(t.Context()), guard.ErrLost)
	})
}

func TestForget_letsTheWorkRunAgain(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		ran := 0
		job := func(context.Context) error { ran++; return nil }
		require.NoError(t, s.here.Do(t.Context(), "nightly", job, guard.WithOnce(24*time.Hour)))
		require.ErrorIs(t, s.here.Do(t.Context(), "nightly", job, guard.WithOnce(24*time.Hour)), guard.ErrDone)
		k := s.show(t, "nightly")
		require.Equal(t, driver.KeyDone, k.State())
		require.Equal(t, "worker 1", k.Marker.Label)
		for _, want := range []bool{true, false} {
			forgotten, err := s.inspector.Forget(t.Context(), "nightly", alice)
			require.NoError(t, err)
			require.Equal(t, want, forgotten)
		}
		require.NoError(t, s.here.Do(t.Context(), "nightly", job, guard.WithOnce(24*time.Hour)))
		require.Equal(t, 2, ran)
	})
}

func TestHold_keepsWorkFromStarting(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		_, err := s.inspector.Hold(t.Context(), "nightly", 2*time.Hour, inspect.By{Actor: "alice", Reason: "migration"})
		require.NoError(t, err)
		time.Sleep(2*time.Hour - time.Minute)
		job := func(context.Context) error { return nil }
		var busy *guard.BusyError
		require.ErrorAs(t, s.here.Do(t.Context(), "nightly", job), &busy)
		require.Equal(t, "held by alice: migration", busy.Label)
		_, err = s.inspector.Hold(t.Context(), "nightly", time.Hour, alice)
		require.ErrorIs(t, err, guard.ErrBusy)
		time.Sleep(time.Minute)
		require.NoError(t, s.here.Do(t.Context(), "nightly", job))

		id, err := s.inspector.Hold(t.Context(), "nightly", 2*time.Hour, alice)
		require.NoError(t, err)
		broken, err := s.inspector.Break(t.Context(), "nightly", id, alice)
		require.NoError(t, err)
		require.False(t, broken, "nobody holds it any more")
		broken, err = s.inspector.BreakNow(t.Context(), "nightly", id, alice)
		require.NoError(t, err)
		require.True(t, broken)
		require.NoError(t, s.here.Do(t.Context(), "nightly", job))
	}, guard.WithMaxHold(time.Hour), guard.WithShared())
}

func TestList_showsTheKeysOfTheNamespace(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		var want []string
		for i := range 25 {
			key := fmt.Sprintf("job:%02d", i)
			lease, err := s.here.Acquire(t.Context(), key)
			require.NoError(t, err)
			defer func() { require.NoError(t, lease.Release(t.Context())) }()
			want = append(want, key)
		}
		other, err := s.here.Acquire(t.Context(), "other")
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Release(t.Context())) }()
		var got []string
		pages := 0
		for cursor := ""; pages == 0 || cursor != ""; pages++ {
			var page []inspect.Key
			page, cursor, err = s.inspector.List(t.Context(), "job:", cursor, 10)
			require.NoError(t, err)
			for _, k := range page {
				require.Len(t, k.Holders, 1)
				got = append(got, k.Name)
			}
		}
		slices.Sort(got)
		require.Equal(t, want, got)
		require.Equal(t, 3, pages)
	}, guard.WithNamespace("shop"))
}

func TestOperations_showTheActorTheActionAndTheReason(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		lease, err := s.here.Acquire(t.Context(), "report")
		require.NoError(t, err)
		defer func() { require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost) }()
		_, err = s.inspector.Break(t.Context(), "report", lease.ID(), alice)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = s.inspector.Forget(t.Context(), "nightly", inspect.By{Actor: "bob"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = s.inspector.Hold(t.Context(), "report", time.Hour, alice)
		require.ErrorIs(t, err, guard.ErrBusy)

		all, err := s.inspector.Operations(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.WithinDuration(t, time.Now(), all[0].Time, 0)
		for i := range all {
			all[i].Time = time.Time{}
		}
		require.Equal(t, []inspect.Operation{
			{Action: inspect.ActionHold, Key: "report", For: time.Hour, Actor: "alice", Reason: "it hangs"},
			{Action: inspect.ActionForget, Key: "nightly", Actor: "bob"},
			{Action: inspect.ActionBreak, Key: "report", ID: lease.ID(), Holder: "worker 1", Fence: lease.Fence(), Actor: "alice", Reason: "it hangs"},
		}, all)

		var results []string
		for _, o := range s.outcomes {
			require.Equal(t, "inspect", o.Adapter)
			results = append(results, o.Result+", "+o.Key+", "+o.Label)
		}
		require.Equal(t, []string{
			"break, report, break by alice: it hangs",
			"unchanged, nightly, forget by bob",
			"failed, report, hold by alice: it hangs",
		}, results)
	})
}

func TestChanges_refuseBadInput(t *testing.T) {
	onSite(t, func(t *testing.T, s *site) {
		ctx, i := t.Context(), s.inspector
		lease, err := s.here.Acquire(ctx, "report")
		require.NoError(t, err)
		defer func() { require.NoError(t, lease.Release(ctx)) }()
		long := strings.Repeat("x", 400)
		for setting, change := range map[string]func() error{
			"By.Actor":  func() error { _, err := i.Break(ctx, "report", lease.ID(), inspect.By{}); return err },
			"By.Reason": func() error { _, err := i.Forget(ctx, "report", inspect.By{Actor: "a", Reason: long}); return err },
			"id":        func() error { _, err := i.BreakNow(ctx, "report", "", alice); return err },
			"Hold":      func() error { _, err := i.Hold(ctx, "report", 0, alice); return err },
			"n":         func() error { _, _, err := i.List(ctx, "", "", 0); return err },
		} {
			var bad *guard.SettingError
			require.ErrorAs(t, change(), &bad, setting)
			require.Equal(t, setting, bad.Setting)
		}
		_, err = i.Show(ctx, "")
		var bad *guard.KeyError
		require.ErrorAs(t, err, &bad)
		time.Sleep(ttl)
		require.True(t, lease.Valid())
		all, err := i.Operations(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

// A ledger that fails is one that records nothing.
type failing struct{ *memory.Locker }

func (failing) Append(context.Context, string, driver.Entry, int) error {
	return errors.New("it is full")
}

func TestChanges_areNotMadeIfTheyCannotBeRecorded(t *testing.T) {
	g, err := guard.New(failing{memory.New()}, guard.WithNamespace("test"))
	require.NoError(t, err)
	i, err := inspect.New(g)
	require.NoError(t, err)
	lease, err := g.Acquire(t.Context(), "report")
	require.NoError(t, err)
	_, err = i.BreakNow(t.Context(), "report", lease.ID(), alice)
	require.ErrorIs(t, err, guard.ErrStore)
	k, err := i.Show(t.Context(), "report")
	require.NoError(t, err)
	require.Equal(t, lease.ID(), k.Holders[0].ID)
	_, err = i.Hold(t.Context(), "other", time.Hour, alice)
	require.ErrorIs(t, err, guard.ErrStore)
	k, err = i.Show(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, driver.KeyFree, k.State())
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Close(context.Background()))
}

// bare is a store without abilities.
type bare struct{ guard.Locker }

func TestNew_refusesABackendThatCannotShowKeys(t *testing.T) {
	g, err := guard.New(bare{memory.New()}, guard.WithNamespace("test"))
	require.NoError(t, err)
	for _, g := range []*guard.Guard{g, nil} {
		_, err = inspect.New(g)
		var bad *guard.SettingError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "guard", bad.Setting)
	}
}
