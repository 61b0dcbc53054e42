// Package backend_test runs the suite of guardtest on the backends that stand on one Redis, on
// every kind of it.
package backend_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce(5)
	redistest.VerifyNoLeaks(m)
}

// backends are those that stand on one Redis.
var backends = map[string]func(redis.UniversalClient) guard.Locker{
	"single":    func(rdb redis.UniversalClient) guard.Locker { return single.New(rdb) },
	"reentrant": func(rdb redis.UniversalClient) guard.Locker { return reentrant.New(rdb) },
}

// A place is where the suite runs: on servers that nothing else uses meanwhile.
type place struct {
	connect func(testing.TB) redis.UniversalClient // a client of its own at each call
	flush   func(testing.TB)
	more    func(*guardtest.Backend) // nil if there is nothing to add
}

// onEach runs the suite, or a part of it, on each backend, with a place of its own.
func onEach(t *testing.T, run func(*testing.T, guardtest.Backend), start func(t *testing.T) place) {
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			s := guardtest.Backend{
				New:    func(t testing.TB) guard.Locker { p.flush(t); return backend(p.connect(t)) },
				Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return backend(p.connect(t)) },
				Owners: name == "reentrant",
				Ledger: true, Inspects: true, Notifies: true, Queues: true,
				Shares: []int{2, 3, driver.Unlimited},
				Keys:   []string{"k:{tag}", "{tag}k", "onerun:3:fence", "onerun:k:lease"},
			}
			if p.more != nil {
				p.more(&s)
			}
			run(t, s)
		})
	}
}

func TestSuite_standalone(t *testing.T) {
	t.Parallel()
	onEach(t, guardtest.Run, func(t *testing.T) place {
		server := redistest.Start(t)
		flush := flusher(t, server)
		return place{
			func(t testing.TB) redis.UniversalClient { return server.Client(t) }, flush,
			func(s *guardtest.Backend) {
				s.Flush = flush
				s.Freeze = func(testing.TB) func() {
					server.Freeze()
					return server.Thaw
				}
			},
		}
	})
}

func TestLong_suiteOnACluster(t *testing.T) {
	redistest.Long(t)
	onEach(t, guardtest.Run, func(t *testing.T) place {
		cluster := redistest.StartCluster(t)
		flush := flusher(t, cluster.Nodes...)
		return place{
			func(t testing.TB) redis.UniversalClient { return cluster.Client(t) }, flush,
			func(s *guardtest.Backend) { s.Flush = flush },
		}
	})
}

func TestWeekly_suiteOnSentinel(t *testing.T) {
	redistest.Long(t)
	onEach(t, guardtest.Run, func(t *testing.T) place {
		sentinel := redistest.StartSentinel(t)
		return place{func(t testing.TB) redis.UniversalClient { return sentinel.Client(t) }, flusher(t, sentinel.Master), nil}
	})
}

// With the race detector, miniredis takes milliseconds for a script. The random part of the suite
// makes all calls of a lease; TestWeekly_suiteOnMiniredis runs the rest, too.
func TestSuite_miniredis(t *testing.T) {
	t.Parallel()
	onEach(t, guardtest.RunExclusion, miniredisPlace)
}

func TestWeekly_suiteOnMiniredis(t *testing.T) {
	redistest.Long(t)
	onEach(t, guardtest.Run, miniredisPlace)
}

func miniredisPlace(t *testing.T) place {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	require.NoError(t, server.Start())
	t.Cleanup(server.Close)
	stopTimeInScripts(server)
	return place{func(t testing.TB) redis.UniversalClient {
		// A burst of scripts takes miniredis seconds with the race detector.
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}, func(testing.TB) { server.FlushAll() }, func(s *guardtest.Backend) {
		// with the race detector it takes some for a script, of which the most is setting up its
		// Lua
		s.MinTTL = 10 * time.Millisecond
	}}
}

// stopTimeInScripts has the time of miniredis stand still while a script runs, as that of Redis
// does: a key that a script has found would have expired when it goes on to renew it.
func stopTimeInScripts(server *miniredis.Miniredis) {
	var mu sync.Mutex
	server.Server().SetPreHook(func(_ *miniserver.Peer, cmd string, _ ...string) bool {
		if strings.HasPrefix(cmd, "EVAL") { // which no script can call
			mu.Lock()
			defer mu.Unlock()
			server.SetTime(time.Now())
		}
		return false
	})
}

// flusher returns a function that makes the servers forget everything.
func flusher(t testing.TB, servers ...*redistest.Server) func(testing.TB) {
	var admins []*redis.Client
	for _, s := range servers {
		admins = append(admins, s.Client(t))
	}
	return func(t testing.TB) {
		t.Helper()
		for _, admin := range admins {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
		}
	}
}
