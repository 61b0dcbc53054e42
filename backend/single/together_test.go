package single_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// claimOf returns a claim of the n-th key.
func claimOf(n int) driver.Claim {
	id := fmt.Sprint("id", n)
	return driver.Claim{Key: fmt.Sprint("key", n), ID: id, Owner: id, TTL: time.Minute}
}

// all runs ask for 0 to n-1 at once, and returns the errors.
func all(n int, ask func(i int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = ask(i) })
	}
	group.Wait()
	return errs
}

func take(ctx context.Context, l guard.Locker, c driver.Claim) error {
	grant, err := l.TryAcquire(ctx, c)
	if err == nil && grant.State != driver.Granted {
		err = fmt.Errorf("the answer is %v", grant.State)
	}
	return err
}

func TestTogether_whatComesWhileACallIsOutGoesOutAsOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := client(t, proxy.Addr())
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(-1)))
	proxy.Delay(100 * time.Millisecond) // so that callers come while the first call is out
	admin := server.Client(t)
	before := reads(t, admin)
	const calls = 500
	for _, err := range all(calls, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
		require.NoError(t, err)
	}
	require.Less(t, reads(t, admin)-before, calls/4)
}

func TestTogether_sendsAForgottenScriptAgainAndAWrongKeyFailsAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	proxy.Delay(5 * time.Millisecond)
	rdb := client(t, proxy.Addr())
	l := single.New(rdb)
	admin := server.Client(t)
	lease := leaseKey(t, admin, "key7")
	require.NoError(t, admin.HSet(t.Context(), lease, "field", "value").Err())
	for range 3 {
		require.NoError(t, admin.ScriptFlush(t.Context()).Err())
		for i, err := range all(50, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
			if i != 7 {
				require.NoError(t, err)
				continue
			}
			var failed *guard.StoreError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, driver.KindWrongType, failed.Kind)
			require.Equal(t, "key7", failed.Key)
		}
	}
}

// Most of those who share a script leave while it is on its way. A round counts if all went by
// connections of our own, which end a call with its context, and if some of what the leavers had
// sent has arrived all the same.
func TestTogether_aCallerThatLeavesDisturbsNobody(t *testing.T) {
	t.Parallel()
	// one goes out by itself, and then those that are enough for another script
	const callers = 1 + 32
	l := alone(t)
	admin := l.server.Client(t)
	counted := 0
	for range 50 {
		l.haveConnections(t)
		before := l.byUsersClient()
		l.server.Freeze()
		left, leave := context.WithCancel(t.Context())
		var leavers, others sync.WaitGroup
		errs := make([]error, callers)
		stay := 0
		for i := range callers {
			if i%8 == 0 {
				stay++
				others.Go(func() { errs[i] = take(t.Context(), l, claimOf(i)) })
			} else {
				leavers.Go(func() { _ = take(left, l, claimOf(i)) })
			}
		}
		// until what waits behind a call that is not answered goes out by itself
		time.Sleep(100 * time.Millisecond)
		leave()
		leavers.Wait()
		// until a connection that ended with them would have noticed, also on a slow machine: it
		// looks each 20 ms
		time.Sleep(200 * time.Millisecond)
		l.server.Thaw()
		others.Wait()
		own := l.byUsersClient() == before
		for _, err := range errs {
			require.NoError(t, err, "a caller who has stayed")
		}
		arrived, err := admin.Keys(t.Context(), "onerun:*:lease:*").Result()
		require.NoError(t, err)
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		if own && len(arrived) > stay {
			counted++
		}
		if counted == 5 {
			return
		}
	}
	require.Fail(t, "nobody has left while it was on its way")
}

// haveConnections has the Locker make the connections of its own that many callers at once are
// worth.
func (l *lonely) haveConnections(t *testing.T) {
	t.Helper()
	const callers = 100
	l.proxy.Delay(2 * time.Millisecond) // so that two calls are under way at a time
	defer l.proxy.Delay(0)
	require.Eventually(t, func() bool {
		before := l.byUsersClient()
		for _, err := range all(callers, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
			require.NoError(t, err)
		}
		for _, err := range all(callers, func(i int) error { _, err := l.Release(t.Context(), claimOf(i), driver.After{}); return err }) {
			require.NoError(t, err)
		}
		return l.byUsersClient() == before
	}, settled, time.Millisecond)
}

// byUsersClient returns how many calls have gone by a connection of the user's client.
func (l *lonely) byUsersClient() uint32 {
	stats := l.rdb.PoolStats()
	return stats.Hits + stats.Misses
}

// Not parallel: it counts goroutines.
func TestTogether_aFrozenServerHoldsUpFewGoroutinesAndNothingAfterwards(t *testing.T) {
	server := redistest.Start(t)
	rdb := client(t, server.Addr(), func(o *redis.Options) { o.ReadTimeout = 2 * settled })
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(-1)))
	before := runtime.NumGoroutine()
	server.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	for _, err := range all(1000, func(i int) error { return take(ctx, l, claimOf(i)) }) {
		require.ErrorIs(t, err, guard.ErrStore)
	}
	require.Less(t, time.Since(start), settled)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+50 }, settled, time.Millisecond,
		"the calls wait for a few connections, not each for one")
	server.Thaw()
	require.Eventually(t, func() bool { return take(t.Context(), l, claimOf(5000)) == nil }, settled, 10*time.Millisecond)
}
