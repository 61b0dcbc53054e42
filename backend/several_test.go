package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The keys are on several nodes of a Cluster, so no script can take all of them.
func TestDoAll_takesAllOrNoneOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			opts := []guard.Option{guard.WithTTL(time.Minute), guard.WithNamespace(name)}
			here := guardWith(t, backend(c.Client(t)), opts)
			there := guardWith(t, backend(c.Client(t)), opts)
			keys := []string{"a", "b", "c", "d", "e", "f", "g", "h", "a"}
			last := map[string]uint64{}
			take := func(ctx context.Context, g *guard.Guard, keys ...string) {
				require.NoError(t, g.DoAll(ctx, keys, func(ctx context.Context) error {
					for _, key := range keys {
						require.GreaterOrEqual(t, guard.Fence(ctx), last[key]) // "a" is named twice
					}
					for _, key := range keys {
						last[key] = guard.Fence(ctx) + 1
					}
					return nil
				}))
			}
			for range 5 {
				take(t.Context(), there, "b")
				take(t.Context(), there, "h", "d")
				take(t.Context(), here, keys...)
				take(t.Context(), there, "d", "a")
			}

			require.NoError(t, here.DoAll(t.Context(), keys, func(context.Context) error {
				used := 0
				for _, node := range c.Nodes {
					if node.Client(t).DBSize(t.Context()).Val() > 0 {
						used++
					}
				}
				require.Greater(t, used, 1)
				for _, key := range keys {
					require.ErrorIs(t, there.DoAll(t.Context(), []string{"x", key}, nothing), guard.ErrBusy)
				}
				return nil
			}))
			take(t.Context(), there, "x") // which the refused calls have given back

			d, err := there.Acquire(t.Context(), "d")
			require.NoError(t, err)
			require.ErrorIs(t, here.DoAll(t.Context(), keys, nothing), guard.ErrBusy)
			take(t.Context(), there, "a", "b", "c", "e", "f", "g", "h")
			require.NoError(t, d.Release(t.Context()))
			take(t.Context(), here, keys...)
		})
	}
}
