package reentrant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// onServer returns a store on a server of its own, and a client to look with.
func onServer(t *testing.T) (guard.Locker, *redis.Client) {
	server := redistest.Start(t)
	return reentrant.New(server.Client(t)), server.Client(t)
}

// onClock is onServer, on a server with a clock of its own.
func onClock(t *testing.T) (guard.Locker, *redis.Client, *clocktest.Clock) {
	server, clock := redistest.StartWithClock(t)
	return reentrant.New(server.Client(t)), server.Client(t), clock
}

// requireState asks for "k" with another claim, that must be refused with that state.
func requireState(t *testing.T, locker guard.Locker, owner string, want driver.State) driver.Answer {
	t.Helper()
	grant := claims(t, locker, "k", owner, "probe", long).ask()
	require.Equal(t, want, grant.State, "%+v", grant)
	require.NotEqual(t, driver.Granted, want, "a probe does not hold")
	return grant
}

func TestHolds_theKeyLastsAsLongAsTheLongestNeeds(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	brief, lasting := claims(t, locker, "k", "us", "brief", 10*time.Second), claims(t, locker, "k", "us", "lasting", 30*time.Second)
	requireLeft := func(want time.Duration) {
		t.Helper()
		require.InDelta(t, want, timeLeft(t, rdb, "k"), near)
	}
	first := brief.take()
	requireLeft(10 * time.Second)
	second := lasting.take()
	requireLeft(30 * time.Second)
	require.Equal(t, first.Fence, second.Fence, "a re-entry keeps its fence")
	require.True(t, second.Held)
	require.True(t, brief.renew())
	requireLeft(30 * time.Second)
	briefest := claims(t, locker, "k", "us", "briefest", 5*time.Second)
	briefest.take()
	requireLeft(30 * time.Second)
	require.True(t, briefest.take().Held)
	requireLeft(30 * time.Second)
	require.True(t, briefest.release(driver.After{}))
	requireLeft(30 * time.Second)
	require.InDelta(t, 30*time.Second, requireState(t, locker, "them", driver.Busy).Left, near)

	require.True(t, lasting.release(driver.After{}))
	requireLeft(10 * time.Second)
	require.InDelta(t, 10*time.Second, requireState(t, locker, "them", driver.Busy).Left, near)
	lasting.take()
	requireLeft(30 * time.Second)
	require.True(t, brief.release(driver.After{}))
	requireLeft(30 * time.Second)
	require.True(t, lasting.release(driver.After{}))
	requireGone(t, rdb, "k")
	require.False(t, lasting.release(driver.After{}), "it is not held any more")
	require.False(t, lasting.renew())
	requireGone(t, rdb, "k")
}

func TestHolds_oneThatIsNotRenewedCountsUntilItEnds(t *testing.T) {
	t.Parallel()
	locker, rdb, clock := onClock(t)
	const ttl = 30 * time.Second
	dead, alive := claims(t, locker, "k", "us", "dead", ttl), claims(t, locker, "k", "us", "alive", long)
	dead.take()
	alive.take()
	require.True(t, alive.release(driver.After{}))
	left := requireState(t, locker, "them", driver.Busy).Left
	require.LessOrEqual(t, left, ttl, "the dead one still counts")
	require.Positive(t, left)
	require.LessOrEqual(t, timeLeft(t, rdb, "k"), ttl)
	clock.Jump(ttl / 2)
	requireState(t, locker, "them", driver.Busy)
	clock.Jump(ttl / 2)
	requireGone(t, rdb, "k")

	dead.take()
	alive.take()
	clock.Jump(ttl) // the dead one has ended
	require.True(t, alive.renew())
	require.EqualValues(t, 2, rdb.HLen(t.Context(), "k").Val(), "its field is there yet")
	require.False(t, dead.renew())
	require.False(t, dead.release(driver.After{}))
	require.True(t, alive.release(driver.After{}))
	requireGone(t, rdb, "k")
}

func TestHolds_ofOneOwnerShareAFenceAndOthersGetALargerOne(t *testing.T) {
	t.Parallel()
	locker, _ := onServer(t)
	var highest uint64
	for _, owner := range []string{"us", "them", "us"} {
		a, b := claims(t, locker, "k", owner, "a", long), claims(t, locker, "k", owner, "b", long)
		fence := a.take().Fence
		require.Greater(t, fence, highest)
		require.Equal(t, fence, b.take().Fence)
		b.claim.Fence = fence + 7 // as another node of a quorum has it
		require.True(t, b.renew())
		highest = fence + 7
		require.Equal(t, highest, claims(t, locker, "k", owner, "c", long).take().Fence)
		for _, id := range []string{"a", "b", "c"} {
			require.True(t, claims(t, locker, "k", owner, id, long).release(driver.After{}))
		}
	}
}

func TestHolds_aMinimumHoldRefusesItsOwnerToo(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	first, second := claims(t, locker, "k", "us", "first", long), claims(t, locker, "k", "us", "second", long)
	first.take()
	second.take()
	require.True(t, first.release(driver.After{Keep: 20 * time.Second}))
	third := claims(t, locker, "k", "us", "third", 10*time.Second)
	third.take() // a live hold of the owner's lets it in
	require.True(t, third.release(driver.After{}))
	require.True(t, second.release(driver.After{}))

	grant := requireState(t, locker, "us", driver.Busy)
	require.InDelta(t, 20*time.Second, grant.Left, near)
	require.Equal(t, "label of first", grant.Label)
	require.InDelta(t, 20*time.Second, timeLeft(t, rdb, "k"), near)
	require.False(t, first.renew())
	require.True(t, first.release(driver.After{}), "a release that is repeated changes nothing")
	requireState(t, locker, "us", driver.Busy)
}

func TestHolds_aDoneMarkerTakesPrecedenceOverOtherHolds(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	first, second := claims(t, locker, "k", "us", "first", long), claims(t, locker, "k", "us", "second", 10*time.Second)
	first.take()
	second.take()
	require.True(t, first.release(driver.After{Keep: 20 * time.Second, Done: true, Record: []byte("the \x00 answer")}))
	for _, owner := range []string{"us", "them"} {
		grant := requireState(t, locker, owner, driver.Done)
		require.Equal(t, "the \x00 answer", string(grant.Record))
		require.InDelta(t, 20*time.Second, grant.Left, near)
	}
	require.True(t, second.renew(), "the other holder continues")
	require.True(t, second.take().Held, "and may repeat its claim")
	require.True(t, second.release(driver.After{}))
	requireState(t, locker, "us", driver.Done)
	require.InDelta(t, 20*time.Second, timeLeft(t, rdb, "k"), near)
}

func TestHolds_aMarkerThatEndsWhileAnotherHolds(t *testing.T) {
	t.Parallel()
	locker, rdb, clock := onClock(t)
	first, second := claims(t, locker, "k", "us", "first", long), claims(t, locker, "k", "us", "second", long)
	first.take()
	second.take()
	require.True(t, first.release(driver.After{Keep: 30 * time.Second, Done: true}))
	requireState(t, locker, "them", driver.Done)
	clock.Jump(30 * time.Second)
	require.InDelta(t, long-30*time.Second, requireState(t, locker, "them", driver.Busy).Left, near)
	require.True(t, second.release(driver.After{}))
	requireGone(t, rdb, "k")
}

func TestHolds_areDistinguishedFromRedissonsByTheirLetter(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	ids := map[string]driver.After{"h": {}, "k": {Keep: time.Minute}, "d": {Keep: time.Minute, Done: true, Record: []byte("1")}}
	for id := range ids {
		claims(t, locker, "k", "1", id, long).take()
	}
	require.True(t, claims(t, locker, "k", "1", "k", long).release(ids["k"]))
	require.True(t, claims(t, locker, "k", "1", "d", long).release(ids["d"]))
	fields := rdb.HGetAll(t.Context(), "k").Val()
	require.Len(t, fields, 3)
	for id, letter := range map[string]string{"h": "H", "k": "K", "d": "D"} {
		require.Regexp(t, "^"+letter+"[0-9]+ [0-9]+ 1(,[0-9]+)? 1", fields["onerun:"+id], "no decimal number, which Java could count up")
	}
}

// Redisson deletes the hash of an RReadWriteLock with the last hold, so a mode is never left alone.
func TestHolds_ofAReadWriteLockShowAHolder(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	require.NoError(t, rdb.HSet(t.Context(), "k", "mode", "read", "0b1c:1", "1").Err())
	grant := requireState(t, locker, "us", driver.Busy)
	require.Equal(t, "0b1c:1", grant.Label)
	require.Negative(t, grant.Left, "it never ends")
}

func TestHolds_ofOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	foreign := map[string]string{
		"onerun:": "H1 1 1 1", "onerun:a": "nonsense", "onerunner:1": "1", "H": "H1 1 1 1",
	}
	for field, value := range foreign {
		require.NoError(t, rdb.HSet(t.Context(), "k", field, value).Err())
		require.NoError(t, rdb.PExpire(t.Context(), "k", time.Minute).Err())
		claim := claims(t, locker, "k", "us", "a", long)
		grant := claim.ask()
		if field == "onerun:" { // a hold of ours that ended in 1970
			require.Equal(t, driver.Granted, grant.State)
			require.True(t, claim.release(driver.After{}))
			continue
		}
		require.Equal(t, driver.Busy, grant.State, "%s: %s", field, value)
		require.False(t, claim.renew())
		require.False(t, claim.release(driver.After{}))
		require.Equal(t, map[string]string{field: value}, rdb.HGetAll(t.Context(), "k").Val())
		require.NoError(t, rdb.Del(t.Context(), "k").Err())
	}
}

func TestHolds_leaveInTheServerWhatIsTooLargeToBeOurs(t *testing.T) {
	t.Parallel()
	locker, rdb := onServer(t)
	plant := func(field, value string) {
		require.NoError(t, rdb.Del(t.Context(), "k").Err())
		require.NoError(t, rdb.HSet(t.Context(), "k", field, value).Err())
		require.NoError(t, rdb.PExpire(t.Context(), "k", time.Minute).Err())
	}
	for length, read := range map[int]int{guard.MaxRecord: guard.MaxRecord, guard.MaxRecord + 1: 0} {
		plant("onerun:a", "D9999999999999 1 2 us"+strings.Repeat("x", length))
		require.Len(t, requireState(t, locker, "them", driver.Done).Record, read)
	}
	plant("onerun:a", "D9999999999999 1 2,600 us"+strings.Repeat("x", 600)+"record")
	done := requireState(t, locker, "them", driver.Done)
	require.Len(t, done.Label, 512)
	require.Equal(t, "record", string(done.Record))
	plant("onerun:a", "H9999999999999 1 1000 "+strings.Repeat("x", 2000))
	grant := requireState(t, locker, "them", driver.Busy)
	require.Len(t, grant.Label, 512)
	require.Len(t, grant.Holder, 128)
	plant(strings.Repeat("f", 1000), "1")
	require.Len(t, requireState(t, locker, "them", driver.Busy).Label, 512)
}

func TestFullServer_renewsAndReleases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	renewals := make(chan error, 1000)
	g := newGuard(t, rdb, guard.WithTTL(renewed), guard.WithOwner("us"), guard.WithHook(guard.Hook{
		Renew: func(_ context.Context, e guard.RenewEvent) { renewals <- e.Err },
	}))
	plain, once, hold := acquire(t, g, "plain"), acquire(t, g, "once", guard.WithOnce(time.Minute)), acquire(t, g, "hold", guard.WithMinHold(time.Minute))
	again := acquire(t, g, "plain")
	kept := acquire(t, g, "plain", guard.WithMinHold(time.Minute))
	require.NoError(t, once.SetRecord([]byte("the answer")))
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())

	var failed *guard.StoreError
	for _, key := range []string{"new", "plain"} {
		require.ErrorAs(t, g.Do(t.Context(), key, nothing), &failed, "%q is another hold", key)
		require.Equal(t, driver.KindOOM, failed.Kind)
	}
	for range len(renewals) + 5 { // one of each lease is later than that
		require.NoError(t, <-renewals)
	}
	for _, lease := range []*guard.Lease{plain, once, hold, again, kept} {
		require.True(t, lease.Valid())
	}
	require.NoError(t, plain.Release(t.Context()))
	require.NoError(t, kept.Release(t.Context()))
	require.NoError(t, again.Release(t.Context()))
	require.NoError(t, once.Complete(t.Context()))
	require.NoError(t, hold.Release(t.Context()))
	var done *guard.DoneError
	require.ErrorAs(t, g.Do(t.Context(), "once", nothing), &done)
	require.Equal(t, "the answer", string(done.Record))
	for _, key := range []string{"hold", "plain"} {
		require.ErrorIs(t, g.Do(t.Context(), key, nothing), guard.ErrBusy)
		timeLeft(t, rdb, key)
	}
}

func TestOwners_withTheSameNameHoldTheKeyTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	for name, connect := range map[string]func() redis.UniversalClient{
		"standalone": func() redis.UniversalClient { return server.Client(t) },
		"Cluster":    func() redis.UniversalClient { return cluster.Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			here := newGuard(t, connect(), guard.WithOwner("import"), guard.WithLabel("here"))
			there := newGuard(t, connect(), guard.WithOwner("import"), guard.WithLabel("there"))
			other := newGuard(t, connect(), guard.WithOwner("export"))
			nobody := newGuard(t, connect())

			first := acquire(t, here, "k")
			require.Equal(t, "here", requireBusy(t, other, "k").Label)
			second := acquire(t, there, "k")
			require.Equal(t, first.Fence(), second.Fence())
			waiting := waits(t, other, "k")
			require.NoError(t, first.Release(t.Context()))
			busy := requireBusy(t, nobody, "k")
			require.Equal(t, "there", busy.Label)
			require.InDelta(t, long, busy.Left, near)
			require.NoError(t, here.Do(t.Context(), "k", nothing), "as long as one holds, the owner is in")
			require.Empty(t, waiting)

			require.NoError(t, second.Release(t.Context()))
			requireIn(t, waiting)
			require.NoError(t, nobody.Do(t.Context(), "k", nothing, guard.WithWait(soon)))
			require.Greater(t, acquire(t, here, "k").Fence(), first.Fence())
		})
	}
}
