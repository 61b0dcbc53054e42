package guard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// events collects the events of one function of a Hook.
type events[E any] struct {
	mu   sync.Mutex
	list []E
}

func (s *events[E]) record(_ context.Context, e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, e)
}

// all returns the events so far.
func (s *events[E]) all() []E {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func TestHook_receivesEachCallToTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		const slow = 10 * time.Millisecond
		store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
			time.Sleep(slow)
			if n == 1 {
				return driver.Answer{}, guardtest.Fail(driver.KindConnection)
			}
			return store.memory.TryAcquire(ctx, c)
		}
		store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
			time.Sleep(2 * slow)
			if n == 1 {
				return false, guardtest.Fail(driver.KindTimeout)
			}
			return store.memory.Release(ctx, c, after)
		}
		var seen events[guard.CallEvent]
		require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithName("work"), guard.WithHook(guard.Hook{Call: seen.record})))
		require.Len(t, seen.all(), 4)
		for i, want := range []struct {
			op   driver.Op
			kind driver.StoreErrorKind
		}{
			{driver.OpAcquire, driver.KindConnection}, {driver.OpAcquire, ""}, {driver.OpRelease, driver.KindTimeout}, {driver.OpRelease, ""},
		} {
			e := seen.all()[i]
			require.Equal(t, want.op, e.Op)
			require.Equal(t, "work", e.Name)
			require.Equal(t, "k", e.Key)
			require.Equal(t, map[driver.Op]time.Duration{driver.OpAcquire: slow, driver.OpRelease: 2 * slow}[e.Op], e.Duration)
			require.Equal(t, want.kind, kindOf(e.Err))
		}
	})
}

func kindOf(err error) driver.StoreErrorKind {
	var store *guard.StoreError
	if errors.As(err, &store) {
		return store.Kind
	}
	return ""
}

func TestHook_receivesCallsToTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events[guard.CallEvent]
		g := openGuard(t, memory.New(), guard.WithName("work"), guard.WithHook(guard.Hook{Call: seen.record}))
		ledger, ok := g.Adapter().Ledger()
		require.True(t, ok)
		require.NoError(t, ledger.Append(t.Context(), "log", driver.Entry{Record: []byte("r")}, 1))
		_, err := driver.Entries(t.Context(), ledger, "log", 1)
		require.NoError(t, err)
		_, err = ledger.Raise(t.Context(), "log", "c", 1)
		require.NoError(t, err)
		require.Len(t, seen.all(), 3)
		for _, e := range seen.all() {
			require.Equal(t, guard.CallEvent{Event: guard.Event{Name: "work", Key: "log", Start: e.Start}, Op: driver.OpLedger}, e)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, ledger.Append(ended, "log", driver.Entry{Record: []byte("r")}, 1), context.Canceled)
		require.ErrorIs(t, seen.all()[3].Err, context.Canceled)
	})
}

func TestHook_receivesTheStartAndTheEndOfAnOrphan(t *testing.T) {
	for name, lose := range map[string]func(store *testStore){
		"an acquire": func(store *testStore) { store.OnAcquire = failing(guardtest.Fail(driver.KindAuth)) },
		"a release":  func(store *testStore) { store.failReleasesFor(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			var orphans events[guard.OrphanEvent]
			var called events[guard.CallEvent]
			inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
				lose(store)
				_ = g.Do(t.Context(), "k", nothing, guard.WithName("work"))
				require.Len(t, orphans.all(), 1)
				require.True(t, orphans.all()[0].Pending)
				time.Sleep(2 * ttl)
				require.Len(t, orphans.all(), 2)
				require.False(t, orphans.all()[1].Pending)
				require.NoError(t, orphans.all()[1].Err)
				require.Positive(t, orphans.all()[1].Attempts)
				require.Equal(t, orphans.all()[0].Op, orphans.all()[1].Op)
				require.Equal(t, "work", orphans.all()[1].Name)
				all := called.all()
				last := all[len(all)-1]
				require.Equal(t, driver.OpCleanUp, last.Op)
				require.NoError(t, last.Err)
			}, guard.WithHook(guard.Hook{Orphan: orphans.record, Call: called.record}))
		})
	}
}

func TestHook_receivesAnErrorForOrphansThatCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var orphans events[guard.OrphanEvent]
		store := newTestStore()
		g := openGuard(t, store, guard.WithHook(guard.Hook{Orphan: orphans.record}))
		store.failReleasesFor(time.Hour)
		_ = g.Do(t.Context(), "k", nothing)
		err := g.Close(t.Context())
		require.ErrorIs(t, err, guard.ErrStore)
		require.ErrorContains(t, err, "1 claim was not released")
		require.Len(t, orphans.all(), 2)
		require.Equal(t, driver.KindConnection, kindOf(orphans.all()[1].Err))
	})
}

func TestHook_Background_givesTheContextOfBackgroundCalls(t *testing.T) {
	background := guard.Hook{Background: func(ctx context.Context) context.Context { return context.WithValue(ctx, hookKey("background"), true) }}
	panics := guard.Hook{Background: func(context.Context) context.Context { panic("hook") }}
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		renewals, cleanUps := 0, 0
		store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
			require.Equal(t, true, ctx.Value(hookKey("background")))
			renewals++
			return store.memory.Renew(ctx, c)
		}
		require.NoError(t, g.Do(t.Context(), "k", sleeping(ttl)))
		require.Positive(t, renewals)
		store.OnAcquire = failing(guardtest.Fail(driver.KindAuth))
		store.OnRelease = func(ctx context.Context, _ int, c driver.Claim, after driver.After) (bool, error) {
			require.Equal(t, true, ctx.Value(hookKey("background")))
			cleanUps++
			return store.memory.Release(ctx, c, after)
		}
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrStore)
		synctest.Wait()
		require.Positive(t, cleanUps)
	}, guard.WithHook(panics), guard.WithHook(background))
}

func TestHook_receivesHowMuchOfTheTTLARenewalHasUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		const slow = time.Second
		store.OnRenew = func(ctx context.Context, n int, c driver.Claim) (bool, error) {
			time.Sleep(slow)
			if n == 1 {
				return false, guardtest.Fail(driver.KindConnection)
			}
			return store.memory.Renew(ctx, c)
		}
		var seen events[guard.RenewEvent]
		start := time.Now()
		require.NoError(t, g.Do(t.Context(), "k", sleeping(ttl),
			guard.WithHook(guard.Hook{Renew: seen.record})))
		renewals := seen.all()
		require.Greater(t, len(renewals), 2)
		require.Equal(t, 1, renewals[0].Failures)
		require.Equal(t, driver.KindConnection, kindOf(renewals[0].Err))
		first := renewals[1]
		require.Equal(t, first.Start.Add(slow).Sub(start), first.Used, "since the request for the lease was sent")
		require.Zero(t, first.Failures)
		require.Equal(t, 1, first.Renewals)
		require.Equal(t, renewals[2].Start.Add(slow).Sub(first.Start), renewals[2].Used, "since the previous renewal was sent")
	})
}

func TestHook_receivesTheReleaseOfEveryLease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var released events[guard.ReleaseEvent]
		store.OnRenew = notHeld
		lease := hold(t, g, "k", guard.WithHook(guard.Hook{Release: released.record}))
		<-lease.Context().Done()
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
		require.Zero(t, store.count(driver.OpRelease), "there is nothing to release")
		require.Len(t, released.all(), 1)
		require.ErrorIs(t, released.all()[0].Err, guard.ErrLost)
		require.NoError(t, lease.Release(t.Context()))
		require.Len(t, released.all(), 1)
	})
}

func TestHook_receivesThatALeaseIsAuxiliary(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var seen events[bool]
		note := func(e guard.Event) { seen.record(t.Context(), e.Purpose == guard.PurposeAuxiliary) }
		require.NoError(t, g.Do(t.Context(), "k", nothing, g.Adapter().Auxiliary(), guard.WithHook(guard.Hook{
			AcquireEnd: func(_ context.Context, e guard.AcquireEvent) { note(e.Event) },
			Call:       func(_ context.Context, e guard.CallEvent) { note(e.Event) },
			RunEnd:     func(_ context.Context, e guard.RunEndEvent) { note(e.Event) },
			Release:    func(_ context.Context, e guard.ReleaseEvent) { note(e.Event) },
		})))
		require.Equal(t, []bool{true, true, false, true, true}, seen.all(), "only the end of the run is not auxiliary")
	})
}

func TestReport_callsTheHooks(t *testing.T) {
	var outcomes []guard.Outcome
	seen := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { outcomes = append(outcomes, o) }}
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		g.Adapter().Report(t.Context(), guard.Outcome{Adapter: "http", Result: "replayed"}, guard.WithHook(seen))
		g.Adapter().Report(t.Context(), guard.Outcome{Adapter: "cron", Name: "own", Skipped: "paused"})
	}, guard.WithName("work"), guard.WithHook(seen))
	require.Equal(t, []guard.Outcome{
		{Name: "work", Adapter: "http", Result: "replayed"},
		{Name: "work", Adapter: "http", Result: "replayed"},
		{Name: "own", Adapter: "cron", Skipped: "paused"},
	}, outcomes)
}

func TestLease_Run_isReportedAsARun(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var ends events[guard.RunEndEvent]
		start := guard.Hook{
			RunStart: func(ctx context.Context, _ guard.RunEvent) context.Context {
				return context.WithValue(ctx, hookKey("run"), true)
			},
			RunEnd: ends.record,
		}
		lease := hold(t, g, "k", guard.WithHook(start))
		mine := errors.New("mine")
		require.Same(t, mine, lease.Run(lease.Context(), func(ctx context.Context) error {
			require.Equal(t, true, ctx.Value(hookKey("run")))
			require.Equal(t, lease.Fence(), guard.Fence(ctx))
			return mine
		}))
		require.False(t, store.free("k"), "Run does not release the lease")
		require.Len(t, ends.all(), 1)
		require.Same(t, mine, ends.all()[0].Err)
		require.False(t, ends.all()[0].Joined)

		store.OnRenew = notHeld
		require.ErrorIs(t, lease.Run(lease.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
		require.ErrorIs(t, ends.all()[1].Err, guard.ErrLost)
		require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	})
}

func TestHook_receivesNoSkipOfAProbe(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		var skips events[guard.SkipEvent]
		opts := []guard.Option{g.Adapter().Probe(), guard.WithOnce(time.Hour), guard.WithHook(guard.Hook{Skip: skips.record})}
		lease := hold(t, g, "k", guard.WithOnce(time.Hour))
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing, opts...), guard.ErrBusy)
		require.Empty(t, skips.all())
		require.NoError(t, lease.Complete(t.Context()))
		require.ErrorIs(t, g.Do(t.Context(), "k", nothing, opts...), guard.ErrDone)
		require.Len(t, skips.all(), 1)
	})
}

func TestHook_thatIsOffReceivesNothingOfTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		off := true
		var one, two, three recorder
		switched := one.hook()
		switched.Off = func() bool { return off }
		broken := three.hook()
		broken.Off = func() bool { panic("hook") }
		opts := []guard.Option{guard.WithHook(switched), guard.WithHook(two.hook()), guard.WithHook(broken)}
		lease := hold(t, g, "k", opts...)
		off = false
		time.Sleep(ttl)
		require.NoError(t, lease.Release(t.Context()))
		synctest.Wait()
		require.Empty(t, one.seen(), "the hook stays off until the lease has ended")
		require.Contains(t, two.seen(), "renew")
		require.Contains(t, three.seen(), "release")
		require.NoError(t, g.Do(t.Context(), "k", nothing, opts...))
		require.Equal(t, []string{"acquire start", "acquire end", "run start", "run end", "release"}, one.seen())
	})
}
