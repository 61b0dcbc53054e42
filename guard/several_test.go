package guard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestAcquireAll_joinsWhatItsContextHolds(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		require.NoError(t, here.Do(t.Context(), "b", func(ctx context.Context) error {
			l, err := here.AcquireAll(ctx, []string{"a", "b", "c"})
			require.NoError(t, err)
			require.GreaterOrEqual(t, l.Fence(), guard.Fence(ctx))
			require.NoError(t, here.Do(l.Context(), "a", nothing), "and is joined")
			require.NoError(t, l.Release(ctx))
			require.True(t, store.free("a"))
			require.False(t, store.free("b"))
			return nil
		}))
		require.NoError(t, here.Do(t.Context(), "b", func(ctx context.Context) error {
			_, err := here.AcquireAll(ctx, []string{"a", "b"})
			require.ErrorIs(t, err, guard.ErrUpgrade)
			return nil
		}, guard.WithShared()))
	})
}

// The lease of a run of several keys is valid as long as those of all keys are.
func TestDoAll_theLeaseIsThatOfAllKeys(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, _ *guard.Guard) {
		err := here.Do(t.Context(), "a", func(ctx context.Context) error {
			return here.DoAll(ctx, []string{"a", "b"}, func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				require.Equal(t, "b", lease.Key())
				require.True(t, lease.Valid())
				time.Sleep(ttl) // the maximum hold of "a" passes
				require.False(t, lease.Valid())
				return nil
			})
		}, guard.WithMaxHold(ttl/2))
		require.ErrorIs(t, err, guard.ErrLost)
	})
}

// The renewal that tells the store the fence can be repeated, so a call that waits does so.
func TestAcquireAll_repeatsToTellTheFence(t *testing.T) {
	for name, c := range map[string]struct {
		failures int
		kind     driver.StoreErrorKind
		opts     []guard.Option
		fails    bool
	}{
		"does not wait":   {1, driver.KindConnection, nil, true},
		"waits":           {2, driver.KindConnection, []guard.Option{guard.WithWait(guard.Forever)}, false},
		"waits too short": {1000, driver.KindConnection, []guard.Option{guard.WithWait(ttl / 4)}, true},
		"loses the lease": {1000, driver.KindConnection, []guard.Option{guard.WithWait(guard.Forever)}, true},
		"has no right":    {1, driver.KindAuth, []guard.Option{guard.WithWait(guard.Forever)}, true},
	} {
		sharingOf(t, name, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
			for range 3 { // so that "b" has the larger fence
				require.NoError(t, hold(t, there, "b").Release(t.Context()))
			}
			var calls atomic.Int32
			store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
				if int(calls.Add(1)) <= c.failures {
					return false, guardtest.Fail(c.kind)
				}
				return false, guardtest.ErrUnscripted
			}
			l, err := here.AcquireAll(t.Context(), []string{"a", "b"}, c.opts...)
			if c.fails {
				require.ErrorIs(t, err, guard.ErrStore)
				require.True(t, store.free("a"))
				require.True(t, store.free("b"))
				return
			}
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

// The joined lease is renewed by its own Guard while DoAll of the other changes it. The race
// detector looks at that.
func TestDoAll_joinsALeaseOfAnotherGuard(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
			time.Sleep(time.Second)
			return false, guardtest.ErrUnscripted
		}
		require.NoError(t, here.Do(t.Context(), "a", func(outer context.Context) error {
			for start := time.Now(); time.Since(start) < ttl; { // in which renewals are due
				before := guard.Fence(outer)
				require.NoError(t, there.DoAll(outer, []string{"a", "b"}, func(ctx context.Context) error {
					require.Greater(t, guard.Fence(ctx), before)
					return nil
				}))
			}
			return nil
		}))
		require.True(t, store.free("a"))
		require.True(t, store.free("b"))
	})
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
		as[*guard.KeyError](t, here.DoAll(t.Context(), []string{"a", ""}, nothing))
		require.Error(t, here.DoAll(t.Context(), []string{"a"}, nil))
	})
}

// A severalStore takes several claims in one call.
type severalStore struct {
	sharingStore
	on func(ctx context.Context)

	mu      sync.Mutex
	batches [][]string // the keys of each
}

func (s *severalStore) batch(ctx context.Context, claims []driver.Claim) {
	keys := make([]string, len(claims))
	for i, c := range claims {
		keys[i] = c.Key
	}
	slices.Sort(keys)
	s.mu.Lock()
	s.batches = append(s.batches, keys)
	s.mu.Unlock()
	if s.on != nil {
		s.on(ctx)
	}
}

func (s *severalStore) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op != driver.OpRenew {
		s.batch(ctx, claims)
	}
	startNow(ctx, s.memory, op, claims, after, done)
}

// together runs f in virtual time with a Guard over a severalStore.
func together(t *testing.T, f func(t *testing.T, store *severalStore, g *guard.Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &severalStore{sharingStore: sharingStore{newTestStore()}}
		g := openGuard(t, store, guard.WithTTL(ttl))
		f(t, store, g)
		ending, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		require.NoError(t, g.Close(ending))
		require.True(t, store.free("a"))
		require.True(t, store.free("c"))
	})
}

func TestAcquireAll_goesOutTogether(t *testing.T) {
	t.Run("free keys", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			require.NoError(t, g.DoAll(t.Context(), []string{"c", "b", "a"}, nothing))
			require.Equal(t, [][]string{{"a", "b", "c"}, {"a", "b", "c"}}, store.batches)
			require.Zero(t, store.count(driver.OpAcquire)+store.count(driver.OpRelease))
		})
	})
	t.Run("a busy key", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			b := hold(t, g, "b")
			time.AfterFunc(time.Second, func() { _ = b.Release(context.Background()) })
			require.NoError(t, g.DoAll(t.Context(), []string{"c", "b", "a"}, nothing, guard.WithWait(time.Minute)))
			require.Equal(t, [][]string{{"a", "b", "c"}, {"c"}, {"c"}, {"a", "b", "c"}}, store.batches)
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			ctx, cancel := context.WithCancel(t.Context())
			store.on = func(ctx context.Context) { <-ctx.Done() }
			time.AfterFunc(time.Second, cancel)
			_, err := g.AcquireAll(ctx, []string{"a", "b", "c"})
			require.ErrorIs(t, err, context.Canceled)
		})
	})
	for _, during := range []string{"acquire", "release"} {
		t.Run("the backend ends the goroutine during the "+during, func(t *testing.T) {
			together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
				ends := func(context.Context) { runtime.Goexit() }
				over := make(chan struct{})
				go func() {
					defer close(over)
					if during == "acquire" {
						store.on = ends
					}
					l, err := g.AcquireAll(t.Context(), []string{"a", "b", "c"})
					require.NoError(t, err)
					store.on = ends
					_ = l.Release(t.Context())
				}()
				<-over
				synctest.Wait() // for the cleaner
				for _, key := range []string{"a", "b", "c"} {
					require.True(t, store.free(key))
				}
			})
		})
	}
	t.Run("the backend panics", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			store.on = func(context.Context) { panic("a bug") }
			l, err := g.AcquireAll(t.Context(), []string{"a", "b", "c"})
			require.NoError(t, err, "each key is asked for again, by itself")
			require.NoError(t, l.Release(t.Context()))
			require.Equal(t, 3, store.count(driver.OpAcquire))
		})
	})
}

// Each of two calls is the first in the queue for one of the keys, and waits for the other key.
func TestDoAll_sharedCallsDoNotWaitForEachOther(t *testing.T) {
	together(t, func(t *testing.T, _ *severalStore, g *guard.Guard) {
		begin := time.Now()
		var all sync.WaitGroup
		for _, late := range []string{"a", "b"} {
			hook := guard.Hook{AcquireStart: func(ctx context.Context, e guard.Event) context.Context {
				if e.Key == late {
					time.Sleep(time.Millisecond)
				}
				return ctx
			}}
			all.Go(func() {
				err := g.DoAll(t.Context(), []string{"a", "b"}, nothing, guard.WithShared(), guard.WithHook(hook))
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.Less(t, time.Since(begin), 10*time.Millisecond)
	})
}

// A hook that blocks delays the keys of its own event only.
func TestAcquireAll_hooksOfAKeyDoNotDelayTheOthers(t *testing.T) {
	const blocked = time.Second
	t.Run("acquire", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			lease := hold(t, g, "a", guard.WithShared()) // which the call joins without a request
			hook := guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
				if e.Key == "a" {
					time.Sleep(blocked)
					require.False(t, store.free("b"))
				}
			}}
			l, err := g.AcquireAll(t.Context(), []string{"a", "b"}, guard.WithShared(), guard.WithHook(hook))
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, lease.Release(t.Context()))
		})
	})
	t.Run("release", func(t *testing.T) {
		together(t, func(t *testing.T, store *severalStore, g *guard.Guard) {
			hook := guard.Hook{Release: func(_ context.Context, e guard.ReleaseEvent) {
				if e.Key == "a" {
					time.Sleep(blocked)
					require.True(t, store.free("b"))
				}
			}}
			l, err := g.AcquireAll(t.Context(), []string{"a", "b"}, guard.WithHook(hook))
			require.NoError(t, err)
			store.forget(t, "a")
			<-l.Context().Done() // "a" is lost, so that its release sends nothing
			require.ErrorIs(t, l.Release(t.Context()), guard.ErrLost)
		})
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

// A lease that was joined is not released by the call, which reports its end nevertheless.
func TestDoAll_reportsTheEndOfAJoinedLease(t *testing.T) {
	forget := func(store sharingStore, _ *guard.Guard) { store.forget(t, "a") }
	revoke := func(_ sharingStore, outer *guard.Guard) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = outer.Close(ended)
	}
	for name, c := range map[string]struct {
		end  func(store sharingStore, outer *guard.Guard)
		want error
	}{"lost": {forget, guard.ErrLost}, "revoked": {revoke, guard.ErrClosed}} {
		sharingOf(t, name, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
			err := here.Do(t.Context(), "a", func(ctx context.Context) error {
				err := there.DoAll(ctx, []string{"a", "b"}, func(ctx context.Context) error {
					c.end(store, here)
					<-ctx.Done()
					return nil
				})
				require.ErrorIs(t, err, c.want)
				return nil
			})
			require.ErrorIs(t, err, c.want)
		})
	}
}

// A store whose keys have a counter each must know under which fence a key is used.
func TestAcquireAll_tellsTheStoreItsFence(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		var raised sync.Map
		store.OnRenew = func(_ context.Context, _ int, c driver.Claim) (bool, error) {
			raised.Store(c.Key, c.Fence)
			return false, guardtest.ErrUnscripted
		}
		l, err := here.AcquireAll(t.Context(), []string{"a", "b", "c"})
		require.NoError(t, err)
		renewed := 0
		raised.Range(func(_, fence any) bool {
			require.Equal(t, l.Fence(), fence)
			renewed++
			return true
		})
		require.Equal(t, 2, renewed, "all but the one that was granted this fence")
		for _, key := range l.Keys() {
			lease, err := here.Acquire(l.Context(), key)
			require.NoError(t, err)
			require.Equal(t, l.Fence(), lease.Fence(), key)
		}
		require.NoError(t, l.Release(t.Context()))
	})
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

// "Not held" is final: whoever learns it, the run that holds the key ends at once.
func TestDoAll_notHeldEndsTheOuterRun(t *testing.T) {
	for _, key := range []string{"a", "b"} {
		for name, outer := range map[string]int{"of the same Guard": 0, "of another Guard": 1} {
			sharingOf(t, key+" "+name, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
				other := map[string]string{"a": "b", "b": "a"}[key]
				var inner error
				err := []*guard.Guard{here, there}[outer].Do(t.Context(), key, func(ctx context.Context) error {
					store.forget(t, key)
					require.NoError(t, hold(t, there, other).Release(t.Context()), "the other key has the larger fence")
					inner = here.DoAll(ctx, []string{"a", "b"}, nothing)
					lease, _ := guard.FromContext(ctx)
					require.False(t, lease.Valid())
					require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
					return nil
				})
				for _, err := range []error{inner, err} {
					require.Equal(t, guard.LossNotHeld, as[*guard.LostError](t, err).Reason)
				}
				require.False(t, guard.Ran(inner))
				require.True(t, guard.Ran(err))
				require.True(t, store.free(other))
			})
		}
	}
}

// A run around the call may hold several keys, too. It has one fence for them afterwards.
func TestDoAll_raisesAllKeysOfTheRunsAroundIt(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		later := func(key string) { require.NoError(t, hold(t, there, key).Release(t.Context())) }
		fences := func(ctx context.Context) (keys map[string]uint64) {
			lease, _ := guard.FromContext(ctx)
			keys = map[string]uint64{"": guard.Fence(ctx)}
			for _, c := range lease.Claims() {
				keys[c.Key] = c.Fence
			}
			return keys
		}
		require.NoError(t, here.Do(t.Context(), "other", func(outer context.Context) error {
			before := guard.Fence(outer)
			require.NoError(t, here.DoAll(outer, []string{"a", "b"}, func(first context.Context) error {
				return here.DoAll(first, []string{"b", "c"}, func(second context.Context) error {
					later("d")
					require.NoError(t, here.DoAll(second, []string{"a", "d"}, func(third context.Context) error {
						f := guard.Fence(third)
						require.Equal(t, map[string]uint64{"": f, "a": f, "d": f}, fences(third))
						return nil
					}))
					f := guard.Fence(second)
					require.Equal(t, map[string]uint64{"": f, "b": f, "c": f}, fences(second))
					require.Equal(t, map[string]uint64{"": f, "a": f, "b": f}, fences(first))
					return nil
				})
			}))
			require.Equal(t, before, guard.Fence(outer), "a key that has nothing to do with it")
			return nil
		}))
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

// A renewal that raises a fence is a renewal to hooks.
func TestDoAll_hooksReceiveTheRenewalsThatRaiseFences(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
		failed := false
		store.OnRenew = func(_ context.Context, n int, _ driver.Claim) (bool, error) {
			if n == 1 {
				failed = true
				return false, guardtest.Fail(driver.KindConnection)
			}
			return false, guardtest.ErrUnscripted
		}
		var inner, outer recorder
		require.NoError(t, here.Do(t.Context(), "b", func(ctx context.Context) error {
			require.NoError(t, hold(t, there, "c").Release(t.Context()))
			before := guard.Fence(ctx)
			require.NoError(t, here.DoAll(ctx, []string{"a", "b", "c"}, nothing, guard.WithWait(ttl), guard.WithHook(inner.hook())))
			synctest.Wait()
			require.Greater(t, guard.Fence(ctx), before)
			require.Equal(t, guard.Fence(ctx), last[guard.RenewEvent](t, &outer).Fence)
			return nil
		}, guard.WithHook(outer.hook())))
		require.True(t, failed)
		require.Equal(t, store.count(driver.OpRenew), inner.count("renew")+outer.count("renew"))
		require.Equal(t, 3, store.count(driver.OpRenew), "two keys, of which one failed")
	})
}
