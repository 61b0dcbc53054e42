package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestCheckKey_refusesAKeyWhoseChannelIsInAnotherSlot(t *testing.T) {
	locker := reentrant.New(nowhere(t))
	g := guardOver(t, locker)
	for key, says := range map[string]string{
		"a{b": "has a brace", "a{}b": "has a brace", "a}b": "has a brace", "}a": "has a brace", "{": "has a brace",
		"{}": "has a brace", "a{}{b}": "has a brace",
		"onerun:{x}:fence": `begins with "onerun:{"`, "onerun:{": `begins with "onerun:{"`,
		"": "is empty", "a\x00b": "has a NUL byte", strings.Repeat("k", guard.MaxKey+1): "is longer",
	} {
		var refused *guard.KeyError
		require.ErrorAs(t, locker.Describe().CheckKey(key), &refused, "%q", key)
		require.ErrorContains(t, refused, says)
		require.True(t, strings.HasPrefix(key, strings.TrimSuffix(refused.Key, "…")), "%q names %q", refused.Key, key)
		require.ErrorAs(t, g.Do(t.Context(), key, nothing), &refused, "a Guard asks it: %q", key)
	}
	for _, key := range []string{
		"{t}:a", "a:{t}", "{t}", "a", "a b", "{a}{b}", "{a}}", "{{a}", "onerun:x", "onerun", "x:onerun:{y}", "{t}}a{", "ключ",
		strings.Repeat("k", guard.MaxKey),
	} {
		require.NoError(t, locker.Describe().CheckKey(key), "%q", key)
	}
}

// nowhere returns a client of a server that is not there.
func nowhere(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestCluster_eachKeyThatIsAcceptedWorks(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	for _, p := range []reentrant.Publish{reentrant.PublishPlain, reentrant.PublishSharded, reentrant.PublishBoth} {
		locker := reentrant.New(rdb, reentrant.WithPublish(p))
		for _, key := range randomKeys(locker, 60) {
			lock := redissontest.New(rdb).Lock(key)
			slot := redisstore.Slot(key)
			require.Equal(t, slot, redisstore.Slot(lock.Channel()), "the channel of %q", key)
			require.Equal(t, slot, redisstore.Slot(redisstore.FenceKeyBeside(key)))
			require.Equal(t, slot, cluster.SlotOf(t, key))
			first := claims(t, locker, key, "us", "first", long)
			first.take()
			timeLeft(t, rdb, key)
			require.True(t, first.renew())
			_, ok, err := lock.TryLock(t.Context(), 1, long)
			require.NoError(t, err)
			require.False(t, ok, "%q is one key to Java and to us", key)
			require.True(t, first.release(driver.After{}))
			_, ok, err = lock.TryLock(t.Context(), 1, long)
			require.NoError(t, err)
			require.True(t, ok)
			_, err = lock.Unlock(t.Context(), 1)
			require.NoError(t, err)
			requireGone(t, rdb, key)
		}
	}
}

// randomKeys returns keys that the locker takes, most of which have braces.
func randomKeys(locker *reentrant.Locker, n int) (keys []string) {
	const letters = "ab{}:"
	for len(keys) < n {
		key := make([]byte, 1+rand.IntN(8))
		for i := range key {
			key[i] = letters[rand.IntN(len(letters))]
		}
		if locker.Describe().CheckKey(string(key)) == nil {
			keys = append(keys, string(key))
		}
	}
	return keys
}

func TestFences_leaveNoKeyBehindForEachKeyThatWasUsed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	server := redistest.Start(t)
	for name, c := range map[string]struct {
		rdb   redis.UniversalClient
		nodes []*redistest.Server
	}{
		"Cluster": {cluster.Client(t), cluster.Nodes}, "standalone": {server.Client(t), []*redistest.Server{server}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, c.rdb)
			slots := map[int]bool{}
			for i := range 1000 {
				key := fmt.Sprintf("{%d}:k%d", i%300, i)
				slots[redisstore.Slot(key)] = true
				require.NoError(t, g.Do(t.Context(), key, nothing))
			}
			for i := range 50 {
				require.NoError(t, g.Do(t.Context(), "{0}:again", nothing), "%d", i)
			}
			slots[redisstore.Slot("{0}:again")] = true
			left := map[int]bool{}
			for _, node := range c.nodes {
				for _, key := range scan(t, node.Client(t)) {
					require.Regexp(t, `^onerun:\{[0-9a-z]+\}:fence$`, key)
					slot := redisstore.Slot(key)
					require.True(t, slots[slot], "a slot that was used")
					require.False(t, left[slot], "one counter a slot")
					left[slot] = true
				}
			}
			require.NotEmpty(t, left)
		})
	}
}

func scan(t *testing.T, rdb *redis.Client) (keys []string) {
	t.Helper()
	all := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for all.Next(t.Context()) {
		keys = append(keys, all.Val())
	}
	require.NoError(t, all.Err())
	return keys
}

func TestDo_leavesAKeyOfAnotherTypeAsItIs(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	g := newGuard(t, rdb)
	lease := acquire(t, g, "overwritten")
	for _, key := range []string{"string", "overwritten"} {
		require.NoError(t, rdb.Set(t.Context(), key, "another's", time.Minute).Err())
		var failed *guard.StoreError
		err := g.Do(t.Context(), key, func(context.Context) error { t.Error("ran"); return nil }, guard.WithWait(time.Hour))
		require.ErrorAs(t, err, &failed)
		require.Equal(t, driver.KindWrongType, failed.Kind)
		require.ErrorContains(t, err, `reentrant: acquire "`+key+`" at `)
	}
	require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	for _, key := range []string{"string", "overwritten"} {
		require.Equal(t, "another's", rdb.Get(t.Context(), key).Val())
		timeLeft(t, rdb, key)
	}
}

func TestNew_refusesWhatCannotWork(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	rdb := nowhere(t)
	for says, c := range map[string]struct {
		setting string
		locker  *reentrant.Locker
	}{
		"client: must not be nil":                          {"client", reentrant.New(nil)},
		"guard: client: must not be nil":                   {"client", reentrant.New((*redis.Client)(nil))},
		"client(*redis.Ring): a Ring moves the keys":       {"client", reentrant.New(ring)},
		"WithPublish(x): must be PublishPlain, PublishSha": {"WithPublish", reentrant.New(rdb, reentrant.WithPublish("x"))},
		"WithClientSetup(nil): must not be nil":            {"WithClientSetup", reentrant.New(rdb, reentrant.WithClientSetup(nil))},
	} {
		_, err := guard.New(c.locker)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, c.setting, refused.Setting)
		require.ErrorContains(t, err, says)
	}
	for _, p := range []reentrant.Publish{reentrant.PublishPlain, reentrant.PublishSharded, reentrant.PublishBoth} {
		require.NoError(t, reentrant.New(rdb, reentrant.WithPublish(p)).Describe().Err)
	}
}

// An application's hash has the name of a key. It is busy, and stays as it is.
func TestDo_leavesAHashOfTheApplicationAsItIs(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	g := newGuard(t, rdb)
	for _, hash := range []map[string]string{
		{"mode": "maintenance"},
		{"mode": "write"},
		{"colour": "blue"},
		{"mode": "maintenance", "colour": "blue"},
	} {
		require.NoError(t, rdb.HSet(t.Context(), "settings", hash).Err())
		var busy *guard.BusyError
		require.ErrorAs(t, g.Do(t.Context(), "settings", func(context.Context) error { t.Error("ran"); return nil }), &busy)
		require.ErrorIs(t, g.Do(t.Context(), "settings", nothing, guard.WithFair()), guard.ErrBusy)
		require.Equal(t, hash, rdb.HGetAll(t.Context(), "settings").Val())
		require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), "settings").Val())
		require.NoError(t, rdb.Del(t.Context(), "settings").Err())
	}
}
