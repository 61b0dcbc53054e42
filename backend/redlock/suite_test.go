package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

const minTTL = 300 * time.Millisecond

func TestSuite_memory(t *testing.T) {
	nodes := func(testing.TB) guard.Locker { return redlock.New(memories(5)) }
	guardtest.Run(t, guardtest.Store{New: nodes, Bubble: true, Ledger: true, MinTTL: 5 * time.Millisecond})
	guardtest.RunExclusion(t, guardtest.Store{New: nodes, MinTTL: minTTL})
}

func memories(n int) (nodes []guard.Locker) {
	for range n {
		nodes = append(nodes, memory.New())
	}
	return nodes
}

func TestSuite_fiveServers(t *testing.T) {
	kinds := map[string]func(t testing.TB, s *redistest.Server) guard.Locker{
		"single":    func(t testing.TB, s *redistest.Server) guard.Locker { return single.New(s.Client(t)) },
		"reentrant": func(t testing.TB, s *redistest.Server) guard.Locker { return reentrant.New(s.Client(t)) },
	}
	for name, node := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // with each other
			servers := redistest.StartN(t, 5)
			flush := func(t testing.TB) {
				for _, s := range servers {
					require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
				}
			}
			over := func(t testing.TB) guard.Locker {
				var nodes []guard.Locker
				for _, s := range servers {
					nodes = append(nodes, node(t, s))
				}
				return redlock.New(nodes)
			}
			guardtest.Run(t, guardtest.Store{
				New:    func(t testing.TB) guard.Locker { flush(t); return over(t) },
				Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return over(t) },
				Flush:  flush,
				Owners: name == "reentrant",
				Ledger: true, Notifies: true,
				MinTTL: minTTL,
				Freeze: func(testing.TB) func() {
					for _, s := range servers {
						s.Freeze()
					}
					return func() {
						for _, s := range servers {
							s.Thaw()
						}
					}
				},
			})
		})
	}
}

func TestOwnerless_isWhereNoNodeKeepsOwners(t *testing.T) {
	nodes := memories(5)
	require.True(t, redlock.New(nodes).Ownerless())
	rdb := redis.NewClient(&redis.Options{}) // which is not asked
	t.Cleanup(func() { _ = rdb.Close() })
	nodes[2] = reentrant.New(rdb)
	require.False(t, redlock.New(nodes).Ownerless())
}
