package guard_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// storeTimes finds the time of the store in the label of a done marker.
var storeTimes = regexp.MustCompile("^(\x1e)[0-9]+")

// Only the store's clock counts. Whatever the caller's clock says, the Guard sends the same
// claims.
func TestClaims_containNoWallClockTime(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guard.Guard, store *testStore) {
		// sent runs a function under a lease that is renewed once, with a done marker and a
		// minimum hold. It returns the claims and the After values that the store received. It
		// clears the IDs, the owners and the fences, because they differ each time.
		sent := func(opts ...guard.Option) (asked []driver.Claim, left []driver.After) {
			before := len(store.Calls())
			require.NoError(t, g.Do(t.Context(), "k", sleeping(ttl*4/10), append(opts, guard.WithWait(time.Minute), guard.WithOnce(time.Hour), guard.WithMinHold(2*time.Hour))...))
			calls := store.Calls()[before:]
			require.Equal(t, driver.OpAcquire, calls[0].Op)
			for _, call := range calls {
				if call.Op != driver.OpAcquire {
					require.Equal(t, calls[0].Grant.Fence, call.Claim.Fence)
					call.Claim.Fence = 0
				}
				call.Claim.ID, call.Claim.Owner = "", ""
				call.Claim.Label = storeTimes.ReplaceAllString(call.Claim.Label, "$1")
				asked, left = append(asked, call.Claim), append(left, call.After)
			}
			return asked, left
		}
		asked, left := sent()
		require.Len(t, asked, 3, "one acquire, one renewal and one release")
		time.Sleep(1000 * time.Hour)
		askedLater, leftLater := sent()
		require.Equal(t, asked, askedLater)
		require.Equal(t, left, leftLater)
	})
}
