package backend_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// FuzzKeys compares which keys are refused with what is said of them, and the slots of what Redis
// keeps for the others with those that a server of a Cluster names: all that a script has to do
// with is in one.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{
		"", "key", "a b\nc", "{a}", "{a}b", "b{a}", "{}a", "a{}{b}", "a}{b}", "{{a}}", "{a", "a}", "}a{", "{a}{b}", "ä{ö}ü", "\x00", "a\x00b", "\xff\xfe",
		"onerun:{1}:fence", "onerun:{", "onerun:x", "redisson_lock__channel:{a}", strings.Repeat("k", guard.MaxKey), strings.Repeat("k", guard.MaxKey+1),
	} {
		f.Add(key)
	}
	rdb := redistest.StartCluster(f).Nodes[0].Client(f)
	holds := reentrant.New(rdb)
	f.Fuzz(func(t *testing.T, key string) {
		bytesFit := key != "" && len(key) <= guard.MaxKey && !strings.Contains(key, "\x00")
		checkKey(t, key, bytesFit && !strings.ContainsAny(key, "{}"), driver.CheckKey(key))
		checkKey(t, key, bytesFit, driver.CheckKeyBytes(key))

		lease, fence := redisstore.LeaseKeys(key)
		prefix, same := redisstore.LeasePrefix(key)
		require.Equal(t, prefix+key, lease)
		require.Equal(t, same, fence)
		require.True(t, redisstore.Own(lease) && redisstore.Own(fence) && redisstore.Own(redisstore.FenceKeyBeside(key)))

		channel := "redisson_lock__channel:{" + key + "}" // as Redisson does
		if strings.Contains(key, "{") {
			channel = "redisson_lock__channel:" + key
		}
		names := []string{key, redisstore.FenceKeyBeside(key), channel, lease, fence}
		pipe := rdb.Pipeline()
		var slots []*redis.IntCmd
		for _, name := range names {
			slots = append(slots, pipe.ClusterKeySlot(t.Context(), name))
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for i, name := range names {
			require.EqualValues(t, slots[i].Val(), redisstore.Slot(name), "%q", name)
		}
		require.Equal(t, slots[0].Val(), slots[1].Val(), "a fence counter is beside its key")
		require.Equal(t, slots[3].Val(), slots[4].Val(), "a lease is beside its fence counter")
		err = holds.Describe().CheckKey(key)
		checkKey(t, key, bytesFit && err == nil, err)
		if err == nil {
			require.Equal(t, slots[0].Val(), slots[2].Val(), "the channel is in the slot of the key")
			require.False(t, redisstore.Own(key))
		}
	})
}

// checkKey checks that a key is taken or refused, and that an error names the refused key.
func checkKey(t *testing.T, key string, fits bool, err error) {
	t.Helper()
	require.Equal(t, fits, err == nil, "%q: %v", key, err)
	if err != nil {
		var refused *guard.KeyError
		require.ErrorAs(t, err, &refused)
		require.True(t, strings.HasPrefix(key, strings.TrimSuffix(refused.Key, "…")))
		require.NotEmpty(t, refused.Reason)
	}
}
