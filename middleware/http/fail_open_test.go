package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Requests that can run without a lease wait no more than a moment for a store that does not
// answer, and one in a second asks it again.
func TestFailOpen_doesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guardhttp.Option{
		"":                nil,
		", waiting":       {idempotency.WithWait(time.Minute)},
		", client cancel": {idempotency.WithClientCancel()},
	} {
		for outage, o := range lifeOutages {
			t.Run(outage+name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				store := single.New(server.Client(t))
				warmLifeStore(t, store)
				h, _ := counted(http.StatusCreated, nil)
				s := lifeServe(t, lifeGuard(t, store), h, append(opts, idempotency.WithFailOpen())...)
				requireRan(t, s.post(t, "before", ""), http.StatusCreated, "run 1")
				o.begin(server)
				stalls := redistest.WatchStalls()
				defer stalls.Stop()
				started := time.Now()
				var first time.Duration
				for run := 2; run <= 21; run++ {
					requireRan(t, s.post(t, "k", ""), http.StatusCreated, fmt.Sprint("run ", run))
					if run == 2 {
						first = time.Since(started) - stalls.Since(started)
					}
					outcome := s.log.await(t, run)[run-1]
					require.Equal(t, idempotency.Degraded, outcome.Result)
					require.ErrorIs(t, outcome.Err, guard.ErrStore)
				}
				// The first request waits 250 ms, and the others for as long once in a second.
				require.Less(t, first, 2*time.Second)
				require.Less(t, time.Since(started)-stalls.Since(started), 4*time.Second)
				o.end(server)
				require.Eventually(t, func() bool {
					a := lifeSend(t.Context(), s.client, s.URL, "after", "")
					return a.replayed()
				}, lifeSoon, lifePoll, "the store is asked again")
			})
		}
	}
}

// A server that is full, read-only or refuses the rights is not away, on each backend. Otherwise, a
// client that fills the store could use a key again and again.
func TestFailOpen_aServerThatRefusesRunsNothing(t *testing.T) {
	t.Parallel()
	faults := map[string]func(ctx context.Context, rdb *redis.Client) error{
		"full":      func(ctx context.Context, rdb *redis.Client) error { return rdb.ConfigSet(ctx, "maxmemory", "1").Err() },
		"read-only": func(ctx context.Context, rdb *redis.Client) error { return rdb.ReplicaOf(ctx, "127.0.0.1", "1").Err() },
		"no replicas": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.ConfigSet(ctx, "min-replicas-to-write", "1").Err()
		},
		"no rights to write": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Do(ctx, "ACL", "SETUSER", "default", "-@write").Err()
		},
		"no rights to scripts": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Do(ctx, "ACL", "SETUSER", "default", "-@scripting").Err()
		},
		"no rights to keys": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Do(ctx, "ACL", "SETUSER", "default", "resetkeys").Err()
		},
	}
	for name, newStore := range map[string]func(nodes []*redis.Client) guard.Locker{
		"single":    func(nodes []*redis.Client) guard.Locker { return single.New(nodes[0]) },
		"reentrant": func(nodes []*redis.Client) guard.Locker { return reentrant.New(nodes[0]) },
		"redlock":   newQuorum, "redlock, a node is dead": newQuorum,
	} {
		for fault, begin := range faults {
			t.Run(name+", "+fault, func(t *testing.T) {
				t.Parallel()
				var servers []*redistest.Server
				var nodes []*redis.Client
				for len(nodes) == 0 || strings.HasPrefix(name, "redlock") && len(nodes) < 3 {
					servers = append(servers, redistest.Start(t))
					nodes = append(nodes, servers[len(servers)-1].Client(t))
				}
				store := newStore(nodes)
				warmLifeStore(t, store)
				h, runs := counted(http.StatusCreated, nil)
				g, err := guard.New(store, guard.WithNamespace("test"))
				require.NoError(t, err)
				t.Cleanup(func() { // it cannot release what the server may have granted
					ctx, cancel := context.WithTimeout(context.Background(), lifeSoon)
					defer cancel()
					_ = g.Close(ctx)
				})
				s := lifeServe(t, g, h, idempotency.WithFailOpen())
				if strings.HasSuffix(name, "dead") {
					servers[2].Kill()
					nodes = nodes[:2]
				}
				for _, rdb := range nodes {
					require.NoError(t, begin(t.Context(), rdb))
				}
				for run := range 5 {
					requireProblem(t, s.post(t, "k", "b"), http.StatusServiceUnavailable, idempotency.Unavailable)
					require.ErrorIs(t, s.log.await(t, run+1)[run].Err, guard.ErrStore)
				}
				require.Zero(t, runs.Load())
			})
		}
	}
}

func newQuorum(nodes []*redis.Client) guard.Locker {
	var all []guard.Locker
	for _, rdb := range nodes {
		all = append(all, single.New(rdb))
	}
	return redlock.New(all)
}

// The same on Redis, whose reply is lost or late: no run with a lease begins beside one without.
func TestFailOpen_keepsOthersAwayOnRedis(t *testing.T) {
	t.Parallel()
	for fault, begin := range map[string]func(p *redistest.Proxy){
		"lost replies": func(p *redistest.Proxy) { p.DarkReplies() },
		"late replies": func(p *redistest.Proxy) { p.Delay(400 * time.Millisecond) },
	} {
		for name, newStore := range map[string]func(*redis.Client) guard.Locker{
			"single":    func(rdb *redis.Client) guard.Locker { return single.New(rdb) },
			"reentrant": func(rdb *redis.Client) guard.Locker { return reentrant.New(rdb) },
		} {
			t.Run(name+", "+fault, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				proxy := redistest.StartProxy(t, server.Addr())
				store := newStore(proxy.Client(t))
				warmLifeStore(t, store)
				gate := newLifeGate(t)
				h, runs := counted(http.StatusCreated, gate.pass)
				degraded := lifeServe(t, lifeGuard(t, store, guard.WithNamespace("test")), h, idempotency.WithFailOpen())
				beside := lifeServe(t, lifeGuard(t, newStore(server.Client(t)), guard.WithNamespace("test")), h)
				begin(proxy)
				first := degraded.start(t.Context(), "k", "b")
				gate.await(t)
				for range 100 { // a claim that is released is free within this time
					requireProblem(t, beside.post(t, "k", "b"), http.StatusConflict, idempotency.InFlight)
					time.Sleep(lifePoll)
				}
				proxy.Restore()
				gate.open()
				requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
				require.Equal(t, idempotency.Degraded, degraded.log.await(t, 1)[0].Result)
				require.EqualValues(t, 1, runs.Load())
			})
		}
	}
}
