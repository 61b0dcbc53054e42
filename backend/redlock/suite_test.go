package redlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce(3) // what runs in virtual time uses the processor, and is not parallel
	redistest.VerifyNoLeaks(m)
}

const minTTL = 300 * time.Millisecond

func TestLong_suiteOnMemory(t *testing.T) {
	leftout.IfShort(t)
	nodes := func(testing.TB) guard.Locker { return redlock.New(memories(5)) }
	guardtest.Run(t, guardtest.Backend{
		New: nodes, Bubble: true, Ledger: true, Inspects: true, MinTTL: 5 * time.Millisecond,
		Shares: []int{driver.Unlimited},
		// it waits for all other goroutines
		Settled: func(testing.TB) { time.Sleep(time.Microsecond) },
	})
	guardtest.RunExclusion(t, guardtest.Backend{
		New: nodes, MinTTL: minTTL, Shares: []int{driver.Unlimited},
	})
}

func memories(n int) (nodes []guard.Locker) {
	for range n {
		nodes = append(nodes, memory.New())
	}
	return nodes
}

// The other tests of this package have nodes of single, so that those run the random part of the
// suite only; TestLong_suiteOnThreeServers runs the rest, too.
func TestSuite_fiveServers(t *testing.T) {
	t.Parallel()
	onServers(t, 5, map[string]func(*testing.T, guardtest.Backend){
		"single": guardtest.RunExclusion, "reentrant": guardtest.RunExclusion,
	})
}

func TestLong_suiteOnThreeServers(t *testing.T) {
	redistest.Long(t)
	onServers(t, 3, map[string]func(*testing.T, guardtest.Backend){"single": guardtest.Run})
}

func TestWeekly_suiteOnFiveServers(t *testing.T) {
	redistest.Long(t)
	onServers(t, 5, map[string]func(*testing.T, guardtest.Backend){"reentrant": guardtest.Run})
}

// onServers runs the suite, or a part of it, over so many servers that nothing else uses
// meanwhile, by the backend that is the node on each.
func onServers(t *testing.T, n int, runs map[string]func(*testing.T, guardtest.Backend)) {
	kinds := map[string]func(t testing.TB, s *redistest.Server) guard.Locker{
		"single":    func(t testing.TB, s *redistest.Server) guard.Locker { return single.New(s.Client(t)) },
		"reentrant": func(t testing.TB, s *redistest.Server) guard.Locker { return reentrant.New(s.Client(t)) },
	}
	shares := map[string][]int{"single": {driver.Unlimited}}
	for name, run := range runs {
		node := kinds[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := redistest.StartN(t, n)
			var admins []*redis.Client
			for _, s := range servers {
				admins = append(admins, s.Client(t))
			}
			var underWay atomic.Int64
			settled := func(t testing.TB) {
				require.Eventually(t, func() bool { return underWay.Load() == 0 }, time.Minute, time.Millisecond)
			}
			flush := func(t testing.TB) {
				settled(t) // what comes late is of the check before
				for _, admin := range admins {
					require.NoError(t, admin.FlushAll(t.Context()).Err())
				}
			}
			over := func(t testing.TB) guard.Locker {
				var nodes []guard.Locker
				for _, s := range servers {
					nodes = append(nodes, counted{node(t, s).(server), &underWay})
				}
				return redlock.New(nodes)
			}
			run(t, guardtest.Backend{
				New:    func(t testing.TB) guard.Locker { flush(t); return over(t) },
				Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return over(t) },
				Flush:  flush,
				Owners: name == "reentrant",
				Ledger: true, Notifies: true, Inspects: true,
				Shares:  shares[name],
				MinTTL:  minTTL,
				Settled: settled,
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

// A server is a node with all that one on Redis can do.
type server interface {
	guard.Locker
	driver.Async
	driver.Describer
	driver.Inspector
	driver.Ledger
	driver.Subscriber
	driver.Warner
}

// A counted node counts the calls that are under way, but for renewals.
type counted struct {
	server
	underWay *atomic.Int64
}

func (c counted) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op == driver.OpRenew {
		c.server.Start(ctx, op, claims, after, done)
		return
	}
	c.underWay.Add(int64(len(claims)))
	c.server.Start(ctx, op, claims, after, func(i int, a driver.Answer, err error) {
		done(i, a, err)
		c.underWay.Add(-1)
	})
}

func (c counted) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	c.underWay.Add(1)
	defer c.underWay.Add(-1)
	return c.server.Append(ctx, name, e, keep)
}

func (c counted) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	c.underWay.Add(1)
	defer c.underWay.Add(-1)
	return c.server.Raise(ctx, name, counter, to)
}

func TestDescribe_hasOwnersIfANodeKeepsThem(t *testing.T) {
	nodes := memories(5)
	require.False(t, redlock.New(nodes).Describe().Owners)
	rdb := redis.NewClient(&redis.Options{}) // which is not asked
	t.Cleanup(func() { _ = rdb.Close() })
	nodes[2] = reentrant.New(rdb)
	require.True(t, redlock.New(nodes).Describe().Owners)
}
