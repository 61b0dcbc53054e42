package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// ownerless is a store that says whether it keeps owners.
type ownerless struct {
	*testStore
	says bool
}

func (s ownerless) Ownerless() bool { return s.says }

// withOwners has callers of a Guard over such a store who have these owners run one after the other behind a holder elsewhere, and returns the store.
func withOwners(t *testing.T, says bool, owners ...string) (store *testStore) {
	synctest.Test(t, func(t *testing.T) {
		store = newTestStore()
		g, err := guard.New(ownerless{store, says}, guard.WithTTL(ttl), guard.WithWait(guard.Forever))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		claim := store.elsewhere(t, time.Hour)
		c := newCallers(t, g)
		for _, o := range owners {
			c.start(t.Context(), 10*time.Microsecond, guard.WithOwner(o))
		}
		time.Sleep(30 * time.Second)
		store.leave(t, claim, guard.After{})
		c.all.Wait()
		require.Len(t, c.ran(), len(owners))
		if says {
			for i, n := range c.ran() {
				require.Equal(t, i, n, "first come, first served")
			}
		}
	})
	return store
}

// busy returns how often it was told that the key is busy.
func (s *testStore) busy() (n int) {
	for _, call := range s.Calls() {
		if call.Op == guard.OpAcquire && call.Err == nil && call.Grant.State == guard.Busy {
			n++
		}
	}
	return n
}

func TestLine_isOneForAllOwnersWhereTheStoreKeepsNone(t *testing.T) {
	var owners []string
	for i := range 1000 {
		owners = append(owners, fmt.Sprint("owner ", i))
	}
	alone := withOwners(t, true, "owner").busy()
	require.LessOrEqual(t, withOwners(t, true, owners...).busy(), 2*alone, "one asks at random times, too")
	require.Greater(t, withOwners(t, false, owners[:10]...).busy(), 5*alone, "each asks for itself")
}

func TestHandOver_isToTheSameOwnerWhereTheStoreKeepsNone(t *testing.T) {
	store := withOwners(t, true, "a", "a", "b", "b", "b", "a")
	var granted []string
	for _, call := range store.granted() {
		granted = append(granted, call.Claim.Owner)
	}
	require.Equal(t, []string{"elsewhere", "a", "b", "a"}[1:], granted)
	require.Len(t, withOwners(t, false, "a", "a").granted(), 2)
}
