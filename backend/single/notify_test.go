package single_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// listeners returns how many channels of the servers somebody listens to.
func listeners(t *testing.T, servers ...*redistest.Server) (n int) {
	for _, s := range servers {
		rdb := s.Client(t)
		n += len(rdb.PubSubChannels(t.Context(), "*").Val()) + len(rdb.PubSubShardChannels(t.Context(), "*").Val())
		_ = rdb.Close()
	}
	return n
}

func TestNotify_aReleaseWakesTheWaiter(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t), redistest.StartCluster(t)
	for name, c := range map[string]struct {
		client func() redis.UniversalClient
		nodes  []*redistest.Server
	}{
		"standalone": {func() redis.UniversalClient { return server.Client(t) }, []*redistest.Server{server}},
		"Cluster":    {func() redis.UniversalClient { return cluster.Client(t) }, cluster.Nodes},
	} {
		t.Run(name, func(t *testing.T) {
			const keys = 30
			holder, waiter := newGuard(t, c.client()), newGuard(t, c.client())
			var held []*guard.Lease
			ended := make(chan error, 2*keys)
			for i := range keys {
				key := fmt.Sprint("k", i)
				lease := acquire(t, holder, key, guard.WithOnce(time.Minute))
				held = append(held, lease)
				for range 2 {
					go func() { ended <- waiter.Do(context.Background(), key, nothing, guard.WithWait(guard.Forever)) }()
				}
			}
			require.Eventually(t, func() bool { return listeners(t, c.nodes...) == keys }, settled, 50*time.Millisecond)
			time.Sleep(300 * time.Millisecond) // for those who ask once more when they listen
			start := time.Now()
			for _, err := range all(keys, func(i int) error {
				if i%2 == 0 {
					return held[i].Complete(context.Background())
				}
				return held[i].Release(context.Background())
			}) {
				require.NoError(t, err)
			}
			done := 0
			for range 2 * keys {
				if err := <-ended; err != nil {
					require.ErrorIs(t, err, guard.ErrDone)
					done++
				}
			}
			require.Equal(t, keys, done)
			require.Less(t, time.Since(start), prompt)
			require.Eventually(t, func() bool { return listeners(t, c.nodes...) == 0 }, settled, 50*time.Millisecond)
		})
	}
}

func TestNotify_aMinimumHoldDoesNotKeepAWaiterForLonger(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := newGuard(t, server.Client(t))
	lease := acquire(t, g, "k", guard.WithMinHold(500*time.Millisecond))
	start := time.Now()
	ended := make(chan error, 1)
	other := newGuard(t, server.Client(t))
	go func() { ended <- other.Do(context.Background(), "k", nothing, guard.WithWait(guard.Forever)) }()
	require.Eventually(t, func() bool { return listeners(t, server) == 1 }, settled, 5*time.Millisecond)
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, <-ended)
	require.Less(t, time.Since(start), prompt)
}
