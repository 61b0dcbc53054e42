package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// ownerless is a testStore that says whether it keeps owners.
type ownerless struct {
	*testStore
	keepsNone bool
}

func (s ownerless) Describe() driver.Description { return driver.Description{Owners: !s.keepsNone} }

// withOwners starts a call for each of the owners while another process holds the key. It then
// releases the key, waits for the calls, and returns the store. The backend keeps no owners if
// keepsNone is set.
func withOwners(t *testing.T, keepsNone bool, owners ...string) (store *testStore) {
	synctest.Test(t, func(t *testing.T) {
		store = newTestStore()
		g := openGuard(t, ownerless{store, keepsNone}, guard.WithTTL(ttl), guard.WithWait(guard.Forever))
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		claim := store.acquireElsewhere(t, time.Hour)
		c := newCallers(t, g)
		for _, o := range owners {
			c.start(t.Context(), 10*time.Microsecond, guard.WithOwner(o))
		}
		time.Sleep(30 * time.Second)
		store.release(t, claim, driver.After{})
		c.all.Wait()
		require.Len(t, c.ran(), len(owners))
		if keepsNone {
			for i, n := range c.ran() {
				require.Equal(t, i, n, "first come, first served")
			}
		}
	})
	return store
}

// busy returns how many acquire calls found the key busy.
func (s *testStore) busy() (n int) {
	for _, call := range s.Calls() {
		if call.Op == driver.OpAcquire && call.Err == nil && call.Grant.State == driver.Busy {
			n++
		}
	}
	return n
}

func TestQueue_isSharedByAllOwnersIfTheBackendKeepsNone(t *testing.T) {
	var owners []string
	for i := range 1000 {
		owners = append(owners, fmt.Sprint("owner ", i))
	}
	alone := withOwners(t, true, "owner").busy()
	require.LessOrEqual(t, withOwners(t, true, owners...).busy(), 2*alone, "a single waiter polls at random times, too")
	require.Greater(t, withOwners(t, false, owners[:10]...).busy(), 5*alone, "each owner's waiter polls for itself")
}

func TestHandOff_isOnlyToTheSameOwner(t *testing.T) {
	store := withOwners(t, true, "a", "a", "b", "b", "b", "a")
	var granted []string
	for _, call := range store.granted() {
		granted = append(granted, call.Claim.Owner)
	}
	require.Equal(t, []string{"a", "b", "a"}, granted)
	require.Len(t, withOwners(t, false, "a", "a").granted(), 2)
}
