package both_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		fleettest.Serve(text, openMember)
		return
	}
	redistest.AtOnce(5)
	redistest.VerifyNoLeaks(m)
}

func TestSuite_memory(t *testing.T) {
	t.Parallel()
	backend := guardtest.Backend{
		New:    func(testing.TB) guard.Locker { return both.New(memory.New(), memory.New()) },
		Bubble: true, Ledger: true,
	}
	guardtest.Run(t, backend)
	backend.Bubble = false
	t.Run("real time", func(t *testing.T) { guardtest.RunExclusion(t, backend) })
}

// layouts are those on one Redis.
var layouts = map[string]func(redis.UniversalClient) guard.Locker{
	"single":    func(rdb redis.UniversalClient) guard.Locker { return single.New(rdb) },
	"plain":     func(rdb redis.UniversalClient) guard.Locker { return single.New(rdb, single.WithPlainKeys(plainName)) },
	"reentrant": func(rdb redis.UniversalClient) guard.Locker { return reentrant.New(rdb) },
}

func plainName(key string) string { return "lock:" + key }

// moves are from one layout to another, on two servers.
var moves = []struct {
	from, to string
	owners   bool
}{
	{"single", "single", false}, {"single", "reentrant", false}, {"plain", "single", false}, {"reentrant", "reentrant", true},
}

// redisSuite describes a move to the suite.
func redisSuite(t *testing.T, from, to string, owners bool) guardtest.Backend {
	servers := redistest.StartN(t, 2)
	connect := func(t testing.TB) guard.Locker {
		return both.New(layouts[from](servers[0].Client(t)), layouts[to](servers[1].Client(t)))
	}
	flush := func(t testing.TB) {
		for _, s := range servers {
			require.NoError(t, s.Client(t).FlushAll(context.Background()).Err())
		}
	}
	return guardtest.Backend{
		New:   func(t testing.TB) guard.Locker { flush(t); return connect(t) },
		Again: func(t testing.TB, _ guard.Locker) guard.Locker { return connect(t) },
		Flush: flush,
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
		Owners: owners, Ledger: true, Notifies: true,
		// A claim takes several calls, and its TTL begins with the first of them.
		MinTTL: 150 * time.Millisecond,
		Keys:   []string{"onerun:3:fence", "onerun:k:lease"},
	}
}

// TestLong_suite runs the whole suite on one of them, and TestWeekly_suite on each.
func TestSuite_redis(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		t.Run(m.from+" to "+m.to, func(t *testing.T) {
			t.Parallel()
			guardtest.RunExclusion(t, redisSuite(t, m.from, m.to, m.owners))
		})
	}
}

func TestLong_suite(t *testing.T) {
	redistest.Long(t)
	guardtest.Run(t, redisSuite(t, "single", "reentrant", false))
}

func TestWeekly_suite(t *testing.T) {
	redistest.Long(t)
	for _, m := range moves {
		t.Run(m.from+" to "+m.to, func(t *testing.T) {
			t.Parallel()
			guardtest.Run(t, redisSuite(t, m.from, m.to, m.owners))
		})
	}
}
