package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

func TestCoupon_givesAwayWhatThereIs(t *testing.T) { stagetest.OnOneBackend(t, givesAwayWhatThereIs) }

func TestWeekly_couponGivesAwayWhatThereIsOnEachBackend(t *testing.T) {
	leftout.IfShort(t)
	stagetest.OnEachBackend(t, givesAwayWhatThereIs)
}

func givesAwayWhatThereIs(t *testing.T, args ...string) {
	file, open := stagetest.Database(t)
	code, printed := stagetest.Run(t, append(args, "-db", file)...)
	require.Zero(t, code)
	require.Contains(t, printed, "The promise was kept.")
	require.Regexp(t, ` [1-9]\d* got the same answer again`, printed)
	requireOneEach(t, open())
}

// requireOneEach has the database say that a hundred users have a coupon each, and that a stale
// write was refused.
func requireOneEach(t *testing.T, db *stage.Database) {
	t.Helper()
	b := requireBooks(t, database{db})
	require.Len(t, b.claims, 100)
	require.Zero(t, b.stock.Remaining)
	users, refused := map[string]bool{}, map[uint64]bool{}
	for _, r := range b.refused {
		require.Less(t, r.Fence, r.StockFence)
		refused[r.Fence] = true
	}
	require.NotEmpty(t, refused)
	for i, c := range b.claims {
		users[c.User] = true
		require.False(t, refused[c.Fence], "a claim under a fence that was refused")
		if i > 0 {
			require.Greater(t, c.Fence, b.claims[i-1].Fence)
		}
	}
	require.Len(t, users, 100)
}

func TestWeekly_couponSurvivesTheDeathOfOneServerOfThree(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	servers := redistest.StartN(t, 3)
	file, open := stagetest.Database(t)
	coupon := stagetest.Start(t, "-backend", "redlock", "-redis", stagetest.Addresses(servers), "-db", file)
	coupon.Await("has frozen server")
	servers[1].Kill()
	require.Zero(t, coupon.Wait())
	requireOneEach(t, open())
}

func TestCoupon_refusesAMemoryOfEachServersOwn(t *testing.T) {
	t.Parallel()
	code, printed := stagetest.Run(t, "-backend", "memory")
	require.Equal(t, 2, code)
	require.Contains(t, printed, `coupon: invalid value "memory" for flag -backend: each process would have a memory of its own`)
}

func TestWeekly_couponOversellsWithoutTheGuard(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	file, open := stagetest.Database(t)
	code, printed := stagetest.Run(t, "-guard=off", "-redis", redistest.Start(t).Addr(), "-db", file)
	require.Equal(t, 1, code)
	claimed := len(requireBooks(t, database{open()}).claims)
	require.Greater(t, claimed, 100)
	require.Contains(t, printed, fmt.Sprintf("oversold by %d", claimed-100))
	require.Contains(t, printed, "THE PROMISE WAS BROKEN")
}

func TestWeekly_couponEndsWithAllItsServersAlsoAFrozenOne(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	for _, how := range []struct {
		signal  os.Signal
		backend string
		code    int
	}{
		{os.Interrupt, "single", 130},
		{os.Interrupt, "reentrant", 130},
		{os.Interrupt, "redlock", 130},
		{os.Kill, "redlock", -1},
	} {
		t.Run(how.signal.String()+" "+how.backend, func(t *testing.T) {
			t.Parallel()
			coupon := stagetest.Start(t, "-backend", how.backend)
			coupon.Await("has frozen server")
			coupon.Signal(how.signal)
			require.Equal(t, how.code, coupon.Wait())
		})
	}
}

func TestRefuse_tellsWhatCanBeTriedAgainFromWhatCannot(t *testing.T) {
	stale := &guard.LostError{Key: stockKey, Reason: guard.LossExpired, Err: errStale}
	for _, c := range []struct {
		err    error
		status int
		retry  string
	}{
		{errOrder, http.StatusBadRequest, ""},
		{errSoldOut, http.StatusGone, ""},
		{errHasOne, http.StatusConflict, ""},
		{&guard.BusyError{Key: stockKey}, http.StatusServiceUnavailable, "1"},
		{stale, http.StatusServiceUnavailable, "1"},
		{&guard.StoreError{Op: driver.OpAcquire, Key: stockKey, Kind: driver.KindTimeout, Err: errors.New("no answer")}, http.StatusServiceUnavailable, "1"},
	} {
		recorder := httptest.NewRecorder()
		refuse(recorder, c.err)
		require.Equal(t, c.status, recorder.Code, "%v", c.err)
		require.Equal(t, c.retry, recorder.Header().Get("Retry-After"), "%v", c.err)
	}
}
