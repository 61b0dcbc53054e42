package guard_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// leaving is the key of the function by which abandon ends its context.
type leaving struct{}

// leaveOnAnswer makes the calls of abandon give up while the store's answer is on its way.
func (s *testStore) leaveOnAnswer() {
	s.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
		grant, err := s.memory.TryAcquire(context.WithoutCancel(ctx), c)
		if leave, ok := ctx.Value(leaving{}).(context.CancelFunc); ok {
			leave()
		}
		return grant, err
	}
}

// abandon makes a call that gives up while the store's answer is on its way.
func abandon(t *testing.T, g *guard.Guard, key string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	require.ErrorIs(t, g.Do(context.WithValue(ctx, leaving{}, leave), key, nothing), context.Canceled)
}

// A call that leaves an orphan touches no other orphan but the few on its way into the heap, also
// if there are as many as the cleaner keeps.
func TestOrphans_doNotMakeACallMoreExpensive(t *testing.T) {
	for name, droppable := range map[string]int{"all may be held": 0, "some only wait to be released again": 5000, "one waits to be released again": 1} {
		t.Run(name, func(t *testing.T) {
			var orphans events[guard.OrphanEvent]
			inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
				empty := guard.FillCleaner(g, droppable)
				store.leaveOnAnswer()
				abandon(t, g, "k")
				empty()
				synctest.Wait()
				require.Len(t, orphans.all(), 1)
				require.Equal(t, droppable > 0, orphans.all()[0].Pending, "there is room for it")
			}, guard.WithHook(guard.Hook{Orphan: orphans.record}))
		})
	}
}

// Close has abandoned the cleaner, so the call itself makes one attempt to release what it does
// not use. Whatever the Locker does then, the call returns, and so does the next Close.
func TestClose_aLateCallSurvivesALockerThatEndsItsRelease(t *testing.T) {
	for _, a := range aborts {
		inTimeOf(t, a.name, func(t *testing.T) {
			store := newTestStore()
			store.OnAcquire = func(_ context.Context, _ int, c driver.Claim) (driver.Answer, error) {
				time.Sleep(time.Second) // whatever the context says
				return store.memory.TryAcquire(t.Context(), c)
			}
			store.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
				a.abort()
				return false, nil
			}
			g := openGuard(t, store, guard.WithTTL(ttl))
			var all sync.WaitGroup
			returned := false
			all.Go(func() {
				require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrClosed)
				returned = true
			})
			synctest.Wait()
			ctx := within(t, 10*time.Millisecond)
			require.ErrorContains(t, g.Close(ctx), "1 call to the store has not returned")
			all.Wait()
			require.True(t, returned)
			require.Equal(t, 1, store.count(driver.OpRelease))
			require.ErrorContains(t, g.Close(t.Context()), "1 claim was not released")
		})
	}
}
