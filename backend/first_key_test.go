package backend_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// proxies stand in front of two servers. A proxy that routes by the first key is a warning.
var proxies = map[string]struct {
	start func(testing.TB, ...string) *redistest.Router
	warns bool
}{
	"first key": {redistest.StartFirstKey, true},
	"one slot":  {redistest.StartOneSlot, false},
	"one server": {func(t testing.TB, servers ...string) *redistest.Router {
		return redistest.StartFirstKey(t, servers[0])
	}, false},
}

func behind(t testing.TB, proxy *redistest.Router) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), Protocol: 2})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestProxies_aKeyHasOneHolderHoweverScriptsAreRouted(t *testing.T) {
	t.Parallel()
	for backend, open := range backends {
		for name, proxy := range proxies {
			t.Run(backend+"/"+name, func(t *testing.T) {
				t.Parallel()
				servers := redistest.StartN(t, 2)
				p := proxy.start(t, servers[0].Addr(), servers[1].Addr())
				var holders [50]atomic.Int64
				var overlaps atomic.Int64
				var all sync.WaitGroup
				var guards []*guard.Guard
				var last guard.Locker
				until := time.Now().Add(time.Second)
				for range 2 { // processes
					last = open(behind(t, p))
					g, err := guard.New(last, guard.WithTTL(settled), guard.WithWait(settled))
					require.NoError(t, err)
					for i := range 64 {
						all.Go(func() {
							for k := i; time.Now().Before(until); k++ {
								err := g.Do(t.Context(), fmt.Sprintf("key%d", k%50), func(context.Context) error {
									if holders[k%50].Add(1) > 1 {
										overlaps.Add(1)
									}
									time.Sleep(5 * time.Millisecond)
									holders[k%50].Add(-1)
									return nil
								})
								if err != nil && !t.Failed() {
									t.Errorf("key%d: %v", k%50, err)
								}
							}
						})
					}
					guards = append(guards, g)
				}
				all.Wait()
				for _, g := range guards {
					require.NoError(t, g.Close(t.Context()))
				}
				require.Zero(t, overlaps.Load())
				require.Eventually(t, func() bool { // a probe that is answered too late is repeated
					warnings := last.(driver.Warner).Warnings(t.Context())
					return len(warnings) == map[bool]int{true: 1}[proxy.warns]
				}, settled, 100*time.Millisecond)
			})
		}
	}
}

// Each batch of claims has to put each lease where a claim of that key alone finds it.
func TestProxies_theFirstBatchIsSafe(t *testing.T) {
	t.Parallel()
	for name, proxy := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := redistest.StartN(t, 2)
			p := proxy.start(t, servers[0].Addr(), servers[1].Addr())
			one, other := single.New(behind(t, p)), single.New(behind(t, p))
			claims := make([]driver.Claim, 100)
			for i := range claims {
				claims[i] = driver.Claim{Key: fmt.Sprint("key", i), ID: "one", Owner: "one", TTL: time.Minute}
			}
			driver.Await(t.Context(), one, driver.OpAcquire, claims, driver.After{}, func(i int, g driver.Answer, err error) {
				require.NoError(t, err)
				require.Equal(t, driver.Granted, g.State)
			})
			for _, c := range claims {
				c.ID = "other"
				grant, err := other.TryAcquire(t.Context(), c)
				require.NoError(t, err)
				require.Equal(t, driver.Busy, grant.State, c.Key)
			}
			left := 0 // a busy machine may need longer than they last
			for i := range servers {
				rdb := servers[i].Client(t)
				probes, err := rdb.Keys(t.Context(), "*:probe:*").Result()
				require.NoError(t, err)
				for _, key := range probes { // no command can find them behind the proxy
					require.NotEqual(t, time.Duration(-1), rdb.TTL(t.Context(), key).Val(), "it ends")
				}
				left += len(probes)
			}
			require.True(t, proxy.warns || left == 0)
			require.Eventually(t, func() bool { // a probe that is answered too late is repeated
				return len(one.Warnings(t.Context())) == map[bool]int{true: 1}[proxy.warns]
			}, settled, 100*time.Millisecond)
		})
	}
}

func TestProxies_aFailedProbeProvesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	// no right to the keys of a probe
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~onerun:{*}:lease:*", "~onerun:{*}:fence", "&*", "+@all").Err())
	l := single.New(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }))
	claims := make([]driver.Claim, 20)
	for i := range claims {
		claims[i] = driver.Claim{Key: fmt.Sprint("key", i), ID: "one", Owner: "one", TTL: time.Minute}
	}
	before := server.Calls(t)["evalsha"]
	driver.Await(t.Context(), l, driver.OpAcquire, claims, driver.After{}, func(_ int, g driver.Answer, err error) {
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
	})
	require.GreaterOrEqual(t, server.Calls(t)["evalsha"]-before, int64(len(claims)))
	warnings := single.New(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })).Warnings(t.Context())
	require.Len(t, warnings, 1)
	require.ErrorContains(t, warnings[0], "each claim is a script of its own")
}
