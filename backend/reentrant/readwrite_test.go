package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// onReadWrite returns a Locker with the option on a server of its own, and a client to look with.
func onReadWrite(t *testing.T) (*reentrant.Locker, *redis.Client) {
	server := redistest.Start(t)
	return reentrant.New(server.Client(t), reentrant.WithReadWrite()), server.Client(t)
}

// reader returns a claimant that shares "k".
func reader(t *testing.T, locker guard.Locker, owner, id string) *claimant {
	c := claims(t, locker, "k", owner, id, longest)
	c.claim.MaxHolders = driver.Unlimited
	return c
}

func TestDescribe_readWriteLocksHaveAnyNumberOfReaders(t *testing.T) {
	without, with := reentrant.New(nowhere(t)), reentrant.New(nowhere(t), reentrant.WithReadWrite())
	require.NoError(t, with.Describe().Shares(driver.Unlimited))
	for _, n := range []int{2, 17, driver.Unlimited} {
		require.NoError(t, without.Describe().Shares(n))
	}
	_, err := guard.New(with, guard.WithLimit(5))
	var refused *guard.SettingError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithLimit", refused.Setting)
	require.ErrorContains(t, err, "WithLimit(5): a read-write lock of Redisson's has any number of readers")
}

func TestReadWrite_refusesASharedTTLThatJavaWouldCut(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	g := guardOver(t, locker, guard.WithTTL(longest+time.Second), guard.WithWait(time.Hour))
	err := g.Do(t.Context(), "k", func(context.Context) error { t.Error("ran"); return nil }, guard.WithShared())
	var refused *guard.SettingError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithTTL", refused.Setting)
	require.Equal(t, "31s", refused.Value)
	require.ErrorContains(t, err, "a shared lease lasts for 30s at most")
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindSettings, failed.Kind)

	started := make(chan error, 1)
	c := reader(t, locker, "us", "a")
	c.claim.TTL = longest + time.Millisecond
	locker.Start(t.Context(), driver.OpAcquire, []driver.Claim{c.claim}, driver.After{}, func(_ int, _ driver.Answer, err error) { started <- err })
	require.ErrorAs(t, <-started, &refused)
	require.Zero(t, rdb.DBSize(t.Context()).Val())
	require.NoError(t, g.Do(t.Context(), "k", nothing), "alone, no Java can cut it")
	require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithShared(), guard.WithTTL(longest)))
}

func TestReadWrite_anOwnerEntersAgain(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	first, second := reader(t, locker, "us", "first"), reader(t, locker, "us", "second")
	fence := first.take().Fence
	other := reader(t, locker, "them", "other")
	require.Greater(t, other.take().Fence, fence)

	writer := claims(t, locker, "k", "us", "writer", longest)
	writer.claim.Queue = driver.Retried
	require.Equal(t, driver.Busy, writer.ask().State, "the owner shares it with others, and with itself")
	require.Equal(t, driver.Busy, reader(t, locker, "new", "new").ask().State, "a writer waits")
	again := second.take()
	require.True(t, again.Held, "an owner is let in, or it would wait for itself")
	require.Equal(t, fence, again.Fence)

	second.claim.Fence = other.claim.Fence + 7
	require.True(t, second.renew())
	require.Equal(t, second.claim.Fence, first.take().Fence, "one fence for one owner")
	before := other.claim.Fence
	require.Equal(t, before, other.take().Fence, "not for others")
	for _, c := range []*claimant{other, first, second} {
		require.Equal(t, driver.Busy, writer.ask().State)
		require.True(t, c.release(driver.After{}))
	}
	require.Greater(t, writer.take().Fence, second.claim.Fence)

	inner := reader(t, locker, "us", "inner")
	again = inner.take()
	require.True(t, again.Held, "an owner that writes may read")
	require.Equal(t, writer.claim.Fence, again.Fence)
	require.Equal(t, driver.Busy, other.ask().State)
	require.True(t, inner.renew())
	require.True(t, writer.release(driver.After{}))
	require.Equal(t, driver.Busy, other.ask().State, "which holds it alone, too, as long as it lasts")
	require.Equal(t, "write", rdb.HGet(t.Context(), "k", "mode").Val())
	require.True(t, inner.release(driver.After{}))
	requireGone(t, rdb, "k")
}

func TestReadWrite_theKeyLastsAsLongAsTheLongestReaderNeeds(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	brief, lasting := reader(t, locker, "us", "brief"), reader(t, locker, "them", "lasting")
	brief.claim.TTL = 10 * time.Second
	requireLeft := func(want time.Duration) {
		t.Helper()
		require.InDelta(t, want, timeLeft(t, rdb, "k"), near)
	}
	brief.take()
	requireLeft(10 * time.Second)
	lasting.take()
	for range 2 {
		requireLeft(longest)
		require.InDelta(t, longest, requireState(t, locker, "others", driver.Busy).Left, near)
		for _, extend := range []func() bool{brief.renew, func() bool { return brief.take().Held }} {
			require.NoError(t, rdb.PExpire(t.Context(), ourTimeoutKey("k", "brief"), time.Second).Err())
			require.True(t, extend())
			requireLeft(longest)
			require.InDelta(t, 10*time.Second, timeLeft(t, rdb, ourTimeoutKey("k", "brief")), near)
		}
	}
	require.True(t, lasting.release(driver.After{}))
	requireLeft(10 * time.Second)
	require.True(t, brief.release(driver.After{}))
	require.Equal(t, []string{"onerun:{" + fenceTag(t, rdb) + "}:fence"}, scan(t, rdb), "only the fence counter is left")
}

// fenceTag returns the hash tag of the only fence counter.
func fenceTag(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	keys := scan(t, rdb)
	require.Len(t, keys, 1)
	return keys[0][len("onerun:{") : len(keys[0])-len("}:fence")]
}

func TestReadWrite_aRepeatedReleaseChangesNothing(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	r := reader(t, locker, "us", "r")
	r.take()
	require.True(t, r.release(driver.After{Keep: 20 * time.Second, Done: true, Record: []byte("x")}))
	require.True(t, r.release(driver.After{}))
	require.Equal(t, driver.Busy, r.ask().State, "nor does a claim that is repeated late")
	require.InDelta(t, 20*time.Second, requireState(t, locker, "others", driver.Busy).Left, near, "no marker")
	other := reader(t, locker, "them", "other")
	other.take()
	require.True(t, other.release(driver.After{}))
	require.Equal(t, "read", rdb.HGet(t.Context(), "k", "mode").Val())
}

func TestReadWrite_besideALockerWithoutIt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	with, without := reentrant.New(server.Client(t), reentrant.WithReadWrite()), reentrant.New(server.Client(t))
	for _, c := range []*claimant{reader(t, with, "them", "r"), claims(t, with, "k", "them", "w", longest)} {
		plain := claims(t, without, "k", "us", "plain", longest)
		fence := c.take().Fence
		require.Equal(t, driver.Busy, plain.ask().State)
		require.True(t, c.release(driver.After{}))
		require.Greater(t, plain.take().Fence, fence)
		require.Equal(t, driver.Busy, c.ask().State)
		require.True(t, plain.renew())
		require.True(t, plain.release(driver.After{}))
		requireGone(t, rdb, "k")
	}
}

// An application's hash has the name of a key. It is busy, and stays as it is.
func TestReadWrite_leavesAHashOfTheApplicationAsItIs(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	for _, hash := range []map[string]string{
		{"mode": "maintenance"},
		{"mode": "write"},
		{"mode": "read"},
		{"colour": "blue"},
		{"mode": "maintenance", "colour": "blue"},
		{"mode": "read", "colour": "blue"},
		{"mode": "read", "count": "5"},
		{"mode": "read", "onerun:a:read": "1"},
		{"mode": "read", "onerun:a": "1"},
	} {
		require.NoError(t, rdb.HSet(t.Context(), "k", hash).Err())
		for _, c := range []*claimant{reader(t, locker, "us", "a"), claims(t, locker, "k", "us", "a", longest)} {
			c.claim.Queue = driver.Retried
			grant := c.ask()
			require.Equal(t, driver.Busy, grant.State, hash)
			require.Negative(t, grant.Left, "it never ends")
			require.False(t, c.renew())
			require.False(t, c.release(driver.After{}))
		}
		require.Equal(t, hash, rdb.HGetAll(t.Context(), "k").Val())
		require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), "k").Val())
		require.NoError(t, rdb.Del(t.Context(), "k").Err())
	}
	hash := map[string]string{"mode": "read", "colour": "blue"}
	require.NoError(t, rdb.HSet(t.Context(), "k", hash).Err())
	require.NoError(t, rdb.PExpire(t.Context(), "k", time.Minute).Err())
	for _, c := range []*claimant{reader(t, locker, "us", "a"), claims(t, locker, "k", "us", "a", longest)} {
		require.Equal(t, "colour", c.ask().Label, "what has a TTL is no reader if it is no number")
	}
	require.Equal(t, hash, rdb.HGetAll(t.Context(), "k").Val())
}

// A reader that is not Redisson's, nor ours, has no timeout key that we know.
func TestReadWrite_aReaderOfAnotherKindLastsAsLongAsTheKey(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	require.NoError(t, rdb.HSet(t.Context(), "k", "mode", "read", "another", "1").Err())
	require.NoError(t, rdb.PExpire(t.Context(), "k", 20*time.Second).Err())
	w, r := claims(t, locker, "k", "us", "w", longest), reader(t, locker, "us", "r")
	require.Equal(t, "another", w.ask().Label)
	r.take()
	require.True(t, r.release(driver.After{}))
	require.Equal(t, map[string]string{"mode": "read", "another": "1"}, rdb.HGetAll(t.Context(), "k").Val())
	require.Greater(t, timeLeft(t, rdb, "k"), 15*time.Second)
}

func TestReadWrite_renewsAndReleasesOnAFullServer(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	a, b, w := reader(t, locker, "us", "a"), reader(t, locker, "them", "b"), claims(t, locker, "w", "us", "w", longest)
	a.take()
	b.take()
	w.take()
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, c := range []*claimant{a, b, w} {
		require.True(t, c.renew())
		require.True(t, c.take().Held)
	}
	waiting := claims(t, locker, "k", "new", "waiting", longest)
	waiting.claim.Queue = driver.Retried
	grant := waiting.ask()
	require.Equal(t, driver.Busy, grant.State)
	require.NotEqual(t, driver.HeldForClaim, grant.Reason, "there is no room to note it")
	_, err := locker.TryAcquire(t.Context(), reader(t, locker, "new", "new").claim)
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindOOM, failed.Kind)
	require.True(t, a.release(driver.After{Keep: time.Minute}))
	require.True(t, b.release(driver.After{}))
	require.True(t, w.release(driver.After{Keep: time.Minute, Done: true, Record: []byte("x")}))
	require.False(t, waiting.release(driver.After{}))
}

// A claim that was wanted may be made again as one that does not wait.
func TestReadWrite_aClaimThatNoLongerWaitsIsNoLongerWanted(t *testing.T) {
	t.Parallel()
	locker, rdb := onReadWrite(t)
	for range 2 { // also if the fence counter is not ahead of the clock
		r, w := reader(t, locker, "us", "r"), claims(t, locker, "k", "them", "w", longest)
		r.take()
		w.claim.Queue = driver.Retried
		require.Equal(t, driver.HeldForClaim, w.ask().Reason)
		require.True(t, r.release(driver.After{}))
		time.Sleep(200 * time.Millisecond)
		w.claim.Queue = driver.Unqueued
		w.take()
		require.True(t, w.release(driver.After{}))
		require.Len(t, scan(t, rdb), 1)
	}
}

// What a lease alone costs with the option is what it costs without: two scripts.
func TestReadWrite_costsTwoScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, opts := range [][]reentrant.Option{nil, {reentrant.WithReadWrite()}} {
		locker := reentrant.New(server.Client(t), opts...)
		use := func() {
			c := claims(t, locker, "k", "us", "a", longest)
			c.take()
			require.True(t, c.release(driver.After{}))
		}
		use()                              // the server learns the scripts
		time.Sleep(200 * time.Millisecond) // its clock passes the fence of a server that had none
		server.ResetStats(t)
		use()
		require.Equal(t, map[string]int64{
			"evalsha": 2, "time": 2, "get": 1, "exists": 1, "hset": 1, "pexpire": 1, "set": 1, "hgetall": 1, "del": 1, "publish": 1,
		}, server.Calls(t))
	}
}

// queued returns the claimant as one that waits in the queue, and a channel of its notifications.
func queued(t *testing.T, locker *reentrant.Locker, c *claimant) (*claimant, <-chan time.Duration) {
	c.claim.Queue = driver.Queued
	notified := make(chan time.Duration, 100)
	t.Cleanup(locker.Subscribe("k", c.claim.ID, func(in time.Duration) { notified <- in }))
	requireNotified(t, notified) // the subscription has begun
	return c, notified
}

// requireNotified waits until the claimant is notified to ask at once.
func requireNotified(t *testing.T, notified <-chan time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		for len(notified) > 0 {
			if <-notified == 0 {
				return true
			}
		}
		return false
	}, soon, time.Millisecond)
}

func TestReadWrite_readersEnterTogetherFromTheQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := func() *reentrant.Locker { return reentrant.New(server.Client(t), reentrant.WithReadWrite()) }
	here, there := locker(), locker()
	holder := claims(t, here, "k", "holder", "holder", longest)
	holder.claim.Queue = driver.Queued
	holder.take()
	r1, notified1 := queued(t, here, reader(t, here, "r1", "r1"))
	r2, notified2 := queued(t, there, reader(t, there, "r2", "r2"))
	w1, _ := queued(t, here, claims(t, here, "k", "w1", "w1", longest))
	w2, _ := queued(t, there, claims(t, there, "k", "w2", "w2", longest))
	r3, notified3 := queued(t, here, reader(t, here, "r3", "r3"))
	for i, c := range []*claimant{r1, r2, w1, w2, r3} {
		require.Equal(t, i, c.ask().Ahead)
	}
	require.True(t, holder.release(driver.After{}))
	requireNotified(t, notified1)
	r1.take()
	requireNotified(t, notified2)
	r2.take()
	again := reader(t, here, "r1", "again")
	again.claim.Queue = driver.Queued
	require.True(t, again.take().Held, "an owner does not queue behind others")
	require.True(t, again.release(driver.After{}))
	for _, c := range []*claimant{w1, w2, r3} {
		grant := c.ask()
		require.Equal(t, driver.Busy, grant.State)
		require.NotEqual(t, driver.OtherNotified, grant.Reason, "readers hold the key")
		wanted := c == w1
		require.Equal(t, wanted, grant.Reason == driver.HeldForClaim)
	}
	require.False(t, w2.release(driver.After{}))
	for len(notified3) > 0 {
		<-notified3
	}
	require.False(t, w1.release(driver.After{}), "the writers give up")
	requireNotified(t, notified3)
	r3.take()
	for _, c := range []*claimant{r1, r2, r3} {
		require.True(t, c.release(driver.After{}))
	}
}
