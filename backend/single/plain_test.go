package single_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func same(key string) string { return key }

func prefixed(key string) string { return "job-lock:prod:" + key }

// plainSuite describes a Locker WithPlainKeys to the suite.
func plainSuite(
	connect func(testing.TB) redis.UniversalClient, name func(string) string, nodes ...*redistest.Server,
) guardtest.Backend {
	plain := single.WithPlainKeys(name)
	flushAll := func(t testing.TB) {
		for _, node := range nodes {
			flush(t, node.Client(t))
		}
	}
	return guardtest.Backend{
		New:    func(t testing.TB) guard.Locker { flushAll(t); return single.New(connect(t), plain) },
		Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return single.New(connect(t), plain) },
		Flush:  flushAll,
		Ledger: true, Inspects: true, Notifies: true, Queues: true,
		Keys: []string{"k:{tag}", "{tag}k", "onerun:3:fence", "onerun:k:lease"},
	}
}

// Without the option, the suite runs in package backend.
func TestLong_suiteWithPlainKeys(t *testing.T) {
	redistest.Long(t)
	server := redistest.Start(t)
	backend := plainSuite(func(t testing.TB) redis.UniversalClient { return server.Client(t) }, same, server)
	backend.Freeze = func(testing.TB) func() {
		server.Freeze()
		return server.Thaw
	}
	guardtest.Run(t, backend)
}

func TestWeekly_suiteWithPlainKeysOnACluster(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t)
	connect := func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }
	guardtest.Run(t, plainSuite(connect, prefixed, cluster.Nodes...))
}

// A lease, its fence, its channel and its queue are in one slot, whatever the name.
func TestPlainKeys_onACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, key := range []string{"report", "{tenant}:report", "a:{tenant}"} {
		holder := plainGuard(t, single.New(cluster.Client(t), single.WithPlainKeys(prefixed)))
		opts := []guard.Option{guard.WithWait(guard.Forever), guard.WithTTL(10 * time.Minute)}
		waiters := plainGuard(t, single.New(cluster.Client(t), single.WithPlainKeys(prefixed)), opts...)
		for _, opts := range [][]guard.Option{nil, {guard.WithFair()}} {
			lease, err := holder.Acquire(t.Context(), key, opts...)
			require.NoError(t, err)
			ran := make(chan error, 1)
			go func() { ran <- waiters.Do(t.Context(), key, func(context.Context) error { return nil }, opts...) }()
			time.Sleep(50 * time.Millisecond) // so that it waits; it is woken in any case
			require.NoError(t, lease.Release(t.Context()))
			select {
			case err := <-ran:
				require.NoError(t, err)
			case <-time.After(prompt): // without a notification, minutes
				require.FailNow(t, "the waiter was not notified", "%q", key)
			}
		}
	}
}

// brokenLease looks like a lease of ours to a claim.
const brokenLease = "onerun:X\n\n\n"

// foreignValues are strings that are no lease of ours. One of them is 24 bytes, as rueidislock
// draws them, that a Locker without the option takes for a done marker.
var foreignValues = []string{
	"", "0", "H", "Hid\n5\nlabel", "Did\nrecord", "D4\n0123456789012345678901", "Kid\n7\n", "onerun", "onerun:",
	"onerun:H", "onerun:Hother\n5", brokenLease, "ONERUN:Hid\n5\nlabel", " onerun:Hid\n5\nlabel",
}

func TestPlainKeys_takeNoForeignStringForALease(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb, single.WithPlainKeys(prefixed))
	for _, value := range foreignValues {
		require.NoError(t, rdb.Set(t.Context(), prefixed("k"), value, time.Minute).Err())
		c := driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: time.Hour, Fence: 5}
		held, err := l.Renew(t.Context(), c)
		require.NoError(t, err)
		require.False(t, held, "%q", value)
		for _, after := range []driver.After{{}, {Keep: time.Hour}, {Keep: time.Hour, Done: true}} {
			held, err = l.Release(t.Context(), c, after)
			require.NoError(t, err)
			require.False(t, held, "%q", value)
		}
		broken, err := l.Break(t.Context(), "k", "id", driver.Break{Now: true})
		require.NoError(t, err)
		require.False(t, broken, "%q", value)
		forgotten, err := l.Forget(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, forgotten, "%q", value)

		c.Fence = 0
		grant, err := l.TryAcquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, driver.Busy, grant.State, "%q", value)
		require.Empty(t, grant.Holder, "%q", value)
		require.Equal(t, value != brokenLease, grant.Reason == driver.HeldByProgram, "%q", value)
		require.InDelta(t, time.Minute, grant.Left, float64(10*time.Second))

		info, err := l.Show(t.Context(), "k")
		require.NoError(t, err)
		require.NotEmpty(t, info.Foreign)
		require.Equal(t, value, rdb.Get(t.Context(), prefixed("k")).Val())
		require.Less(t, rdb.PTTL(t.Context(), prefixed("k")).Val(), time.Minute+time.Millisecond)
	}
}

// The lock of another library is shown, listed, and deleted only if it is the one that was seen.
func TestPlainKeys_showAndBreakForeignLocks(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb, single.WithPlainKeys(prefixed))
	i, err := inspect.New(plainGuard(t, l))
	require.NoError(t, err)
	by := inspect.By{Actor: "alice"}
	values := append([]string{
		"sha1:", "\xff\x00", strings.Repeat("v", 129), strings.Repeat("v", 2047), "ADDED:2026-11-26@web-1",
		"8a7c2e5e-5d0b-4c9e-8b56-0f5c6d9a1b2c", "bG9jaw==",
	}, foreignValues...)
	for _, value := range values {
		require.NoError(t, rdb.Set(t.Context(), prefixed("k"), value, time.Minute).Err())
		err := plainGuard(t, l).Do(t.Context(), "k", func(context.Context) error { return nil })
		var busy *guard.BusyError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, value != brokenLease, busy.Foreign)
		if busy.Foreign {
			require.ErrorContains(t, err, "held by another library, for up to")
		}

		keys, _, err := i.List(t.Context(), "", "", 100)
		require.NoError(t, err)
		require.Len(t, keys, 1, "%q", value)
		h := keys[0].Holders[0]
		require.Equal(t, []any{"k", driver.KeyHeld, true}, []any{keys[0].Name, keys[0].State(), h.Foreign})
		require.InDelta(t, time.Minute, h.Left, float64(10*time.Second))

		broken, err := i.Break(t.Context(), "k", h.ID, by)
		require.NoError(t, err)
		require.False(t, broken, "it has no minimum hold")
		require.NoError(t, rdb.Set(t.Context(), prefixed("k"), value+"2", 0).Err())
		broken, err = i.BreakNow(t.Context(), "k", h.ID, by)
		require.NoError(t, err)
		require.False(t, broken, "%q is the value of an earlier holder", value)
		require.NoError(t, rdb.Set(t.Context(), prefixed("k"), value, 0).Err())
		broken, err = i.BreakNow(t.Context(), "k", h.ID, by)
		require.NoError(t, err)
		require.True(t, broken, "%q", value)
		require.Zero(t, rdb.Exists(t.Context(), prefixed("k")).Val())
	}
}

// A string that is too long to be a lock keeps the key busy, and cannot be broken.
func TestPlainKeys_showNoLockInALongString(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb, single.WithPlainKeys(prefixed))
	require.NoError(t, rdb.Set(t.Context(), prefixed("k"), strings.Repeat("v", 2048), 0).Err())
	info, err := l.Show(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, driver.KeyForeign, info.State())
}

func TestPlainKeys_leaveOtherTypesAsTheyAre(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	g := plainGuard(t, single.New(rdb, single.WithPlainKeys(prefixed)))
	require.NoError(t, rdb.HSet(t.Context(), prefixed("hash"), "a", "b").Err())
	require.NoError(t, rdb.ZAdd(t.Context(), prefixed("zset"), redis.Z{Score: 1, Member: "a"}).Err())
	require.NoError(t, rdb.RPush(t.Context(), prefixed("list"), "a").Err())
	for _, key := range []string{"hash", "zset", "list"} {
		err := g.Do(t.Context(), key, func(context.Context) error { return nil }, guard.WithWait(time.Minute))
		var refused *guard.StoreError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, driver.KindWrongType, refused.Kind)
		require.ErrorContains(t, err, "job-lock:prod:"+key)
		require.False(t, guard.Ran(err))
	}
	require.EqualValues(t, 1, rdb.ZCard(t.Context(), prefixed("zset")).Val())
}

// Nothing notifies of the release of a foreign lock, and its TTL is long.
func TestPlainKeys_waitersPollWhileAForeignProgramHoldsTheKey(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guard.Option{"first come": nil, "fair": {guard.WithFair()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			opts := append(opts, guard.WithTTL(10*time.Minute), guard.WithWait(guard.Forever))
			g := plainGuard(t, single.New(rdb, single.WithPlainKeys(same)), opts...)
			require.NoError(t, rdb.Set(t.Context(), "k", "theirs", time.Hour).Err())
			ran := make(chan error, 1)
			go func() { ran <- g.Do(t.Context(), "k", func(context.Context) error { return nil }) }()
			require.Eventually(t, func() bool { // it has subscribed, and polls nevertheless
				return len(rdb.PubSubChannels(t.Context(), "onerun:*").Val()) > 0
			}, settled, 5*time.Millisecond)
			// longer than the longest pause between two polls, so that it has asked since
			time.Sleep(600 * time.Millisecond)
			require.NoError(t, rdb.Del(t.Context(), "k").Err())
			select {
			case err := <-ran:
				require.NoError(t, err)
			case <-time.After(settled):
				require.Fail(t, "the waiter did not find out that the key is free")
			}
		})
	}
}

func TestPlainKeys_publishOnAChannelOfOurOwn(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	app := rdb.Subscribe(t.Context(), "news", "{tenant}news")
	defer app.Close()
	_, err := app.Receive(t.Context())
	require.NoError(t, err)
	g := plainGuard(t, single.New(rdb, single.WithPlainKeys(same)))
	for _, key := range []string{"news", "{tenant}news"} {
		require.NoError(t, g.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.NoError(t, rdb.Publish(t.Context(), key, "last").Err())
	}
	for heard := 0; heard < 2; {
		if m, ok := must(app.Receive(t.Context())).(*redis.Message); ok {
			require.Equal(t, "last", m.Payload)
			heard++
		}
	}
}

func must(v any, err error) any {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPlainKeys_settingsAndNamesAreRefused(t *testing.T) {
	t.Parallel()
	rdb := client(t, "127.0.0.1:1")
	_, err := guard.New(single.New(rdb, single.WithPlainKeys(nil)))
	require.ErrorContains(t, err, "WithPlainKeys(nil)")

	g := plainGuard(t, single.New(rdb, single.WithPlainKeys(same)))
	for _, key := range []string{"onerun:{1}:fence", "a{b", "a}b", "a{}b"} {
		var bad *guard.KeyError
		require.ErrorAs(t, g.Do(t.Context(), key, func(context.Context) error { return nil }), &bad, key)
	}
	g = plainGuard(t, single.New(rdb, single.WithPlainKeys(func(string) string { return "" })))
	require.ErrorContains(t, g.Do(t.Context(), "k", func(context.Context) error { return nil }), "is empty")

	g = plainGuard(t, single.New(rdb, single.WithPlainKeys(same)))
	err = g.Do(t.Context(), "k", func(context.Context) error { return nil }, guard.WithLimit(2))
	require.ErrorContains(t, err, "WithPlainKeys")
	require.False(t, guard.Ran(err))
}

func TestPlainKeys_areListedByTheirNames(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	affixed := func(key string) string { return "lock:" + key + ":v1" }
	require.NoError(t, rdb.Set(t.Context(), "lock:other:v2", "", 0).Err())
	g := plainGuard(t, single.New(rdb, single.WithPlainKeys(affixed)))
	list := func(g *guard.Guard) ([]string, error) {
		i, err := inspect.New(g)
		require.NoError(t, err)
		found, _, err := i.List(t.Context(), "re", "", 100)
		var keys []string
		for _, k := range found {
			keys = append(keys, k.Name)
		}
		return keys, err
	}
	lease, err := g.Acquire(t.Context(), "report")
	require.NoError(t, err)
	keys, err := list(g)
	require.NoError(t, err)
	require.Equal(t, []string{"report"}, keys)
	require.NoError(t, lease.Release(t.Context()))

	for _, name := range []func(string) string{strings.ToUpper, func(string) string { return "one" }} {
		g = plainGuard(t, single.New(rdb, single.WithPlainKeys(name)))
		_, err = list(g)
		require.ErrorContains(t, err, "WithPlainKeys")
	}
}

func plainGuard(t *testing.T, l guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(l, append(opts, guard.WithoutNamespace())...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}
