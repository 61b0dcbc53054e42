package guard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// Whatever the order in which calls name their keys, each gets all of them, alone.
func TestDoAll_takesAllOrNoneInAnyOrder(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprint("fair ", fair), func(t *testing.T) {
			opts := []guard.Option{guard.WithWait(guard.Forever)}
			if fair {
				opts = append(opts, guard.WithFair())
			}
			sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
				keys := []string{"a", "b", "c", "d"}
				holders := map[string]*atomic.Int64{}
				last := map[string]*atomic.Uint64{}
				for _, k := range keys {
					holders[k], last[k] = new(atomic.Int64), new(atomic.Uint64)
				}
				var all sync.WaitGroup
				for i := range 16 {
					g := []*guard.Guard{here, there}[i%2]
					all.Go(func() {
						for range 10 {
							mine := slices.Clone(keys)
							rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
							mine = mine[:1+rand.IntN(3)]
							require.NoError(t, g.DoAll(t.Context(), mine, func(ctx context.Context) error {
								for _, k := range mine {
									require.EqualValues(t, 1, holders[k].Add(1))
									defer holders[k].Add(-1)
									require.Greater(t, guard.Fence(ctx), last[k].Swap(guard.Fence(ctx)), k)
								}
								time.Sleep(rand.N(20 * time.Millisecond))
								return nil
							}, opts...))
						}
					})
				}
				all.Wait()
				for _, k := range keys {
					require.True(t, store.free(k))
				}
			}, opts...)
		})
	}
}

func TestDoAll_refusesWithoutWaiting(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
		b := hold(t, there, "b")
		var busy *guard.BusyError
		var seen recorder
		err := here.DoAll(t.Context(), []string{"c", "b", "a"}, nothing, guard.WithHook(seen.hook()))
		require.ErrorAs(t, err, &busy)
		require.Equal(t, "b", busy.Key)
		require.Equal(t, 1, seen.count("skip"), "one call, one skip")
		require.True(t, store.free("a"))
		require.True(t, store.free("c"))

		begin := time.Now()
		err = here.DoAll(t.Context(), []string{"c", "b", "a"}, nothing, guard.WithWait(time.Second))
		require.ErrorAs(t, err, &busy)
		require.InDelta(t, time.Second, time.Since(begin), float64(20*time.Millisecond))
		require.True(t, store.free("a"))
		require.NoError(t, b.Release(t.Context()))
	})
}

// A call that waits holds only the keys before the one that it waits for.
func TestDoAll_waitsHoldingSmallerKeysOnly(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
		b := hold(t, there, "b")
		done := make(chan error)
		go func() {
			done <- here.DoAll(t.Context(), []string{"c", "a", "b"}, nothing, guard.WithWait(guard.Forever))
		}()
		time.Sleep(time.Second)
		require.False(t, store.free("a"))
		require.True(t, store.free("c"))
		require.NoError(t, b.Release(t.Context()))
		require.NoError(t, <-done)
		require.True(t, store.free("a"))
	})
}

func TestAcquireAll_allKeysAreLostTogether(t *testing.T) {
	for name, renew := range map[string]func(ctx context.Context) (bool, error){
		"one is not held":    func(context.Context) (bool, error) { return false, nil },
		"one is not renewed": func(ctx context.Context) (bool, error) { return false, frozen(ctx) },
	} {
		sharingOf(t, name, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
			var held atomic.Bool
			store.OnRenew = func(ctx context.Context, _ int, c driver.Claim) (bool, error) {
				if c.Key == "b" && held.Load() {
					return renew(ctx)
				}
				return false, guardtest.ErrUnscripted
			}
			l, err := here.AcquireAll(t.Context(), []string{"c", "a", "b", "a"})
			require.NoError(t, err)
			held.Store(true)
			require.Equal(t, []string{"a", "b", "c"}, l.Keys())
			require.True(t, l.Valid())
			select {
			case <-l.Context().Done():
			case <-time.After(2 * ttl):
				require.Fail(t, "the context has not ended")
			}
			require.Equal(t, "b", as[*guard.LostError](t, context.Cause(l.Context())).Key)
			require.False(t, l.Valid())
			require.ErrorIs(t, l.Release(t.Context()), guard.ErrLost)
			require.True(t, store.free("a"))
			require.True(t, store.free("c"))
		})
	}
}

func TestAcquireAll_settings(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, _ *guard.Guard) {
		for want, c := range map[string]struct {
			keys []string
			opts []guard.Option
		}{
			"keys":        {nil, nil},
			"WithOnce":    {[]string{"a"}, []guard.Option{guard.WithOnce(time.Hour)}},
			"WithMinHold": {[]string{"a"}, []guard.Option{guard.WithMinHold(time.Hour)}},
		} {
			_, err := here.AcquireAll(t.Context(), c.keys, c.opts...)
			require.Equal(t, want, as[*guard.SettingError](t, err).Setting)
		}
		_ = as[*guard.KeyError](t, here.DoAll(t.Context(), []string{"a", ""}, nothing))
		require.Error(t, here.DoAll(t.Context(), []string{"a"}, nil))
	})
}

// A release without an answer does not hide that another of the keys was lost.
func TestDoAll_reportsALossBesideAnErrorOfTheStore(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		var fails atomic.Bool
		store.OnRelease = func(_ context.Context, _ int, c driver.Claim, _ driver.After) (bool, error) {
			switch {
			case fails.Load() && c.Key == "a":
				return false, guardtest.Fail(driver.KindConnection)
			case fails.Load() && c.Key == "b":
				return false, nil
			}
			return false, guardtest.ErrUnscripted
		}
		fails.Store(true)
		err := here.DoAll(t.Context(), []string{"a", "b", "c"}, nothing)
		fails.Store(false)
		require.ErrorIs(t, err, guard.ErrLost)
	})
}

// The context that a function saw end was not the caller's, whichever of the keys was lost.
func TestDoAll_lossIsNoCancellation(t *testing.T) {
	for _, key := range []string{"a", "b", "c"} {
		sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
			var forgotten atomic.Bool
			store.OnRenew = func(_ context.Context, _ int, c driver.Claim) (bool, error) {
				if forgotten.Load() && c.Key == key {
					return false, nil
				}
				return false, guardtest.ErrUnscripted
			}
			var seen recorder
			err := here.DoAll(t.Context(), []string{"a", "b", "c"}, func(ctx context.Context) error {
				forgotten.Store(true)
				<-ctx.Done()
				return ctx.Err()
			}, guard.WithHook(seen.hook()))
			require.ErrorIs(t, err, guard.ErrLost, key)
			require.NotErrorIs(t, err, context.Canceled, key)
			end := last[guard.RunEndEvent](t, &seen)
			require.ErrorIs(t, end.Err, guard.ErrLost, key)
			require.True(t, end.LeaseEnded, key)
		})
	}
}

// Keys that are held while the call waits for another one are renewed, and hooks see that: the race
// detector looks at what AcquireAll changes of them in the end.
func TestAcquireAll_renewsKeysThatItHoldsWhileItWaits(t *testing.T) {
	var renewals atomic.Int32
	hook := guard.Hook{Renew: func(_ context.Context, e guard.RenewEvent) {
		if e.Key == "a" && e.Fence > 0 {
			renewals.Add(1)
		}
	}}
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		busy := hold(t, there, "b")
		time.AfterFunc(3*ttl, func() { _ = busy.Release(context.Background()) })
		l, err := here.AcquireAll(t.Context(), []string{"a", "b"}, guard.WithWait(10*ttl), guard.WithHook(hook), guard.WithMaxHold(20*ttl))
		require.NoError(t, err)
		require.Positive(t, renewals.Load())
		for _, key := range l.Keys() {
			lease, err := here.Acquire(l.Context(), key)
			require.NoError(t, err)
			require.Equal(t, l.Fence(), lease.Fence())
		}
		time.Sleep(2 * ttl)
		require.True(t, l.Valid())
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestDoAll_hooksThatAreOffReceiveNothing(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		off := true
		var switched, on recorder
		hook := switched.hook()
		asked := 0
		hook.Off = func() bool { asked++; return off }
		opts := []guard.Option{guard.WithHook(hook), guard.WithHook(on.hook())}
		keys := []string{"a", "b"}
		require.NoError(t, here.DoAll(t.Context(), keys, func(context.Context) error { off = false; return nil }, opts...))
		require.Equal(t, 1, asked, "the whole call is on or off")
		off = true
		busy := hold(t, there, "b")
		require.ErrorIs(t, here.DoAll(t.Context(), keys, nothing, opts...), guard.ErrBusy)
		require.NoError(t, busy.Release(t.Context()))
		require.NoError(t, here.Do(t.Context(), "b", func(ctx context.Context) error {
			return here.DoAll(ctx, keys, nothing, opts...)
		}))
		require.Empty(t, switched.seen())
		for event, n := range map[string]int{"run start": 2, "run end": 2, "skip": 1} {
			require.Equal(t, n, on.count(event), event)
		}
		off = false
		require.NoError(t, here.DoAll(t.Context(), keys, nothing, opts...))
		require.Equal(t, 1, switched.count("run start"))
	})
}
