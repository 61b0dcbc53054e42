package single_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

// A user without the right to subscribe can wait all the same. A metric shows it.
func TestACL_withoutTheRightToSubscribeWaitersPoll(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]string{"no channels": "resetchannels", "no subscribe": "-subscribe"} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~onerun:*", "&onerun:*", "+@all", taken).Err())
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
			t.Cleanup(func() { require.NoError(t, rdb.Close()) })
			seen := faultmetrics.New()
			g, err := guard.New(single.New(rdb), guard.WithTTL(long), guard.WithHook(seen.Hook))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
			elsewhere, err := guard.New(single.New(server.Client(t)))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, elsewhere.Close(context.Background())) })

			lease, err := elsewhere.Acquire(t.Context(), "k")
			require.NoError(t, err)
			came, waits := make(chan error, 1), make(chan struct{})
			go func() {
				came <- g.Do(t.Context(), "k", nothing, guard.WithWait(settled), guard.WithHook(guard.Hook{
					Wait: func(context.Context, guard.WaitEvent) { close(waits) },
				}))
			}()
			<-waits
			// a waiter that has waited for long enough counts as one that missed a wake-up
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, lease.Release(t.Context()))
			start := time.Now()
			require.NoError(t, <-came)
			require.Less(t, time.Since(start), prompt, "it asks a few times a second, and not in half a TTL")
			require.Equal(t, []string{"onerun.waiter.missed_wakeups{} 1"}, seen.Lines())

			// its own leases are released
			mine, err := g.Acquire(t.Context(), "mine")
			require.NoError(t, err)
			require.NoError(t, mine.Release(t.Context()))
			require.NoError(t, elsewhere.Do(t.Context(), "mine", func(context.Context) error { return nil }))
		})
	}
}
