package redisstore_test

import (
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestSlot_isWhatAClusterSays(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	names := []string{"a", "{a}", "{a}b", "b{a}", "{}a", "a{}{b}", "a}{b}", "{{a}}", "{a", "a}", "}a{", "{a}{b}", "ä{ö}ü", "123456789"}
	const letters = "ab{}:{}ö\xff"
	for range 2000 {
		name := make([]byte, 1+rand.IntN(12))
		for i := range name {
			name[i] = letters[rand.IntN(len(letters))]
		}
		names = append(names, string(name))
	}
	pipe := cluster.Nodes[0].Client(t).Pipeline()
	var slots, fences []*redis.IntCmd
	for _, name := range names {
		slots = append(slots, pipe.ClusterKeySlot(t.Context(), name))
		fences = append(fences, pipe.ClusterKeySlot(t.Context(), redisstore.FenceKeyBeside(name)))
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	for i, name := range names {
		require.EqualValues(t, slots[i].Val(), redisstore.Slot(name), "%q", name)
		require.Equal(t, slots[i].Val(), fences[i].Val(), "the fence counter of %q is beside it", name)
	}
}
