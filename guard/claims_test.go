package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// The store's time is its own: a caller whose clock says something else asks for the same.
func TestClaims_haveNothingOfTheClockInThem(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		// sent runs under a lease that is waited for, renewed once, and leaves a marker and a minimum hold, and returns what the store was
		// asked, but for what is different each time: IDs, and the fence, which is the store's own.
		sent := func(opts ...guard.Option) (asked []guard.Claim, left []guard.After) {
			before := len(store.Calls())
			require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error {
				time.Sleep(ttl * 4 / 10)
				return nil
			}, append(opts, guard.WithWait(time.Minute), guard.WithOnce(time.Hour), guard.WithMinHold(2*time.Hour))...))
			calls := store.Calls()[before:]
			require.Equal(t, guard.OpAcquire, calls[0].Op)
			for _, call := range calls {
				if call.Op != guard.OpAcquire {
					require.Equal(t, calls[0].Grant.Fence, call.Claim.Fence)
					call.Claim.Fence = 0
				}
				call.Claim.ID, call.Claim.Owner = "", ""
				asked, left = append(asked, call.Claim), append(left, call.After)
			}
			return asked, left
		}
		asked, left := sent()
		require.Len(t, asked, 3, "to take it, to renew it, to give it back")
		time.Sleep(1000 * time.Hour)
		askedLater, leftLater := sent()
		require.Equal(t, asked, askedLater)
		require.Equal(t, left, leftLater)
	})
}
