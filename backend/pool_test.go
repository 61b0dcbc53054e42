package backend_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Callers that want a slow store, and leave, cost no held lease, however small the pool is.
func TestWeekly_claimsDoNotStarveRenewalsInASmallPool(t *testing.T) {
	redistest.Long(t)
	const ttl, held = 12 * time.Second, 20
	of := map[string]func(nodes []redis.UniversalClient) guard.Locker{
		"single":    func(nodes []redis.UniversalClient) guard.Locker { return single.New(nodes[0]) },
		"reentrant": func(nodes []redis.UniversalClient) guard.Locker { return reentrant.New(nodes[0]) },
		"redlock": func(nodes []redis.UniversalClient) guard.Locker {
			var all []guard.Locker
			for _, node := range nodes {
				all = append(all, single.New(node))
			}
			return redlock.New(all)
		},
	}
	for name, locker := range of {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []redis.UniversalClient
			var links []*redistest.Proxy
			for _, server := range redistest.StartN(t, 3) {
				link := redistest.StartProxy(t, server.Addr())
				links = append(links, link)
				nodes = append(nodes, link.Client(t, func(o *redis.Options) { o.PoolSize = 1 }))
			}
			g, err := guard.New(locker(nodes), guard.WithTTL(ttl))
			require.NoError(t, err)
			var leases []*guard.Lease
			for i := range held {
				lease, err := g.Acquire(t.Context(), fmt.Sprint("held", i))
				require.NoError(t, err)
				leases = append(leases, lease)
			}
			for _, link := range links {
				link.Delay(400 * time.Millisecond)
			}
			var callers sync.WaitGroup
			for i := range 200 * 3 * int(ttl/time.Second) / 2 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					_ = g.Do(ctx, fmt.Sprint("call", i), nothing)
				})
				time.Sleep(5 * time.Millisecond)
			}
			callers.Wait()
			for _, lease := range leases {
				require.NoError(t, context.Cause(lease.Context()))
			}
			for _, link := range links {
				link.Delay(0)
			}
			for _, lease := range leases {
				require.NoError(t, lease.Release(t.Context()))
			}
			require.NoError(t, g.Close(t.Context()))
		})
	}
}
