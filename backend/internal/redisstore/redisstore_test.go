package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func TestLeaseKeys_shareASlotWhateverTheKey(t *testing.T) {
	fences := map[string]bool{}
	for i := range 20_000 {
		key := fmt.Sprint("key:", i)
		lease, fence := redisstore.LeaseKeys(key)
		tag, rest, ok := strings.Cut(strings.TrimPrefix(lease, "onerun:{"), "}:")
		require.True(t, ok)
		require.Equal(t, "lease:"+key, rest)
		require.Equal(t, "onerun:{"+tag+"}:fence", fence)
		fences[fence] = true
	}
	require.Len(t, fences, 1024, "fence counters do not grow in number with the keys")
	lease, _ := redisstore.LeaseKeys("{a}")
	require.Regexp(t, `^onerun:\{[0-9a-f]+\}:lease:\{a\}$`, lease, "our tag comes first")
}

func TestBounded_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		// virtual time: a call that does not end with its context
		err := redisstore.Bounded(ctx, func() error { time.Sleep(time.Hour); return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, redisstore.Bounded(ctx, func() error { t.Error("called"); return nil }), context.DeadlineExceeded)
		require.NoError(t, redisstore.Bounded(context.Background(), func() error { return nil }))
		time.Sleep(time.Hour) // virtual time: until what was left behind has ended
	})
}

func TestMilliseconds_roundsUp(t *testing.T) {
	require.EqualValues(t, 1, redisstore.Milliseconds(1))
	require.EqualValues(t, 100, redisstore.Milliseconds(100*time.Millisecond))
	require.EqualValues(t, 101, redisstore.Milliseconds(100*time.Millisecond+1))
}

// A Cluster whose nodes are replaced again and again must not leave a client behind for each.
func TestCluster_closesItsClientsOfNodesThatItDrops(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := redisstore.New("test", cluster.Client(t))
	var mu sync.Mutex
	var own []*redis.Client
	s.ClientSetup(func(client *redis.Client) {
		mu.Lock()
		defer mu.Unlock()
		own = append(own, client)
	})
	script := redisstore.NewScript("return 1")
	run := func() {
		n, err := redisstore.Integer(s, t.Context(), redisstore.Call{
			Op: driver.OpRenew, Key: "k", Script: script, FurtherKeys: []string{"k"},
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	run() // a renewal has a client at once
	run()
	mu.Lock()
	first := own
	mu.Unlock()
	require.NotEmpty(t, first)
	for _, client := range first {
		require.Eventually(t, func() bool { // a call still uses its server for a moment
			redisstore.DropUnused(s)
			return errors.Is(client.Ping(t.Context()).Err(), redis.ErrClosed)
		}, time.Minute, 5*time.Millisecond)
	}
	run()
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(own), len(first))
}
