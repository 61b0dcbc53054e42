package guard_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestNesting_joinsTheLeaseThatTheContextHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		ran := 0
		require.NoError(t, g.Do(t.Context(), "a", func(ctx context.Context) error {
			outer := guard.Fence(ctx)
			return g.Do(ctx, "b", func(ctx context.Context) error {
				require.NotEqual(t, outer, guard.Fence(ctx))
				return g.Do(ctx, "a", func(ctx context.Context) error {
					require.Equal(t, outer, guard.Fence(ctx), "the context has the lease on key a again")
					lease, _ := guard.FromContext(ctx)
					require.Equal(t, "a", lease.Key())
					return g.Do(ctx, "b", func(ctx context.Context) error {
						ran++
						lease, _ := guard.FromContext(ctx)
						require.Equal(t, "b", lease.Key())
						require.NoError(t, lease.Release(ctx), "the inner call does not own the lease, so this does nothing")
						require.False(t, store.free("b"))
						return nil
					})
				})
			})
		}))
		require.Equal(t, 1, ran)
		require.Equal(t, 2, store.count(driver.OpAcquire), "a call that joins does not ask the store")
		require.Equal(t, 2, store.count(driver.OpRelease))
	})
}

func TestNesting_acquireJoinsToo(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		outer := hold(t, g, "k")
		inner, err := g.Acquire(outer.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, outer.Fence(), inner.Fence())
		require.NoError(t, inner.Release(t.Context()))
		require.True(t, outer.Valid())
		require.NoError(t, g.Do(inner.Context(), "k", nothing))
		require.NoError(t, outer.Release(t.Context()))
		require.Equal(t, 1, store.count(driver.OpAcquire))
	})
}

// A lease of a service is held for months, and joined millions of times.
func TestNesting_aReleasedLeaseKeepsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		outer := hold(t, g, "k")
		type large [64]byte // small values without pointers share their memory
		join := func() weak.Pointer[large] {
			value := new(large)
			ctx := context.WithValue(outer.Context(), contextKey{}, value)
			inner, err := g.Acquire(ctx, "k")
			require.NoError(t, err)
			require.NoError(t, inner.Context().Err())
			require.NoError(t, inner.Release(t.Context()))
			require.ErrorIs(t, context.Cause(inner.Context()), guard.ErrReleased)
			several, err := g.AcquireAll(ctx, []string{"k"})
			require.NoError(t, err)
			require.NoError(t, several.Release(t.Context()))
			return weak.Make(value)
		}
		value := join()
		runtime.GC()
		require.Nil(t, value.Value(), "it is reachable from the outer lease")
		require.True(t, outer.Valid())
		require.NoError(t, outer.Release(t.Context()))
	})
}

func TestNesting_returnsTheFunctionsError(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		mine := errors.New("mine")
		require.Same(t, mine, g.Do(t.Context(), "k", func(ctx context.Context) error {
			return g.Do(ctx, "k", func(context.Context) error { return mine })
		}))
	})
}

func TestNesting_endsWithTheLeaseEvenOnADetachedContext(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		store.OnRenew = notHeld
		require.ErrorIs(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			err := g.Do(context.WithoutCancel(ctx), "k", func(ctx context.Context) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
				return nil
			})
			require.ErrorIs(t, err, guard.ErrLost, "the joined run reports the loss, too")
			require.ErrorIs(t, g.Do(ctx, "k", nothing), guard.ErrLost, "a call cannot join a lost lease")
			_, err = g.Acquire(context.WithoutCancel(ctx), "k")
			require.ErrorIs(t, err, guard.ErrLost)
			return nil
		}), guard.ErrLost)
	})
}

func TestNesting_aRunThatOutlivesTheLeaseGetsErrLost(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, _ *testStore) {
		result := make(chan error, 1)
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			go func() { result <- g.Do(ctx, "k", func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
			synctest.Wait()
			return nil
		}))
		require.Equal(t, guard.LossReleased, as[*guard.LostError](t, <-result).Reason)
	})
}

func TestNesting_aContextWhoseLeaseWasReleasedHoldsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		var old context.Context
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			old = context.WithoutCancel(ctx)
			return nil
		}))
		lease := hold(t, g, "k")
		require.ErrorIs(t, g.Do(old, "k", nothing), guard.ErrBusy)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, g.Do(old, "k", nothing))
		require.Equal(t, 4, store.count(driver.OpAcquire))
	})
}

func TestNesting_needsTheSameStore(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		same := openGuard(t, store)
		other := newGuard(t, memory.New())
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			fence := guard.Fence(ctx)
			require.NoError(t, same.Do(ctx, "k", func(ctx context.Context) error {
				require.Equal(t, fence, guard.Fence(ctx), "another Guard over the same store joins")
				return nil
			}))
			require.NoError(t, other.Do(ctx, "k", func(context.Context) error {
				require.ErrorIs(t, other.Do(t.Context(), "k", nothing), guard.ErrBusy, "a Guard over another store acquires a lease there")
				return nil
			}))
			return g.Do(ctx, "k", func(context.Context) error {
				require.False(t, store.free("other::k"), "a call in another namespace acquires a lease, too")
				return nil
			}, guard.WithNamespace("other"))
		}))
		require.NoError(t, same.Close(t.Context()))
	})
}

func TestFromContext_ofAContextWithoutALease(t *testing.T) {
	_, ok := guard.FromContext(t.Context())
	require.False(t, ok)
	require.Zero(t, guard.Fence(t.Context()))
}
