package guard_test

import (
	"context"
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
