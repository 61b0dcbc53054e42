package backend_test

import (
	"context"
	"fmt"
	"net"
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

// A slowLink leads to all servers of a test by Paths. Its clients have go-redis' own options, so a
// new connection takes all the round trips that it takes for a user.
type slowLink struct {
	t     testing.TB
	mu    sync.Mutex
	delay time.Duration
	paths map[string]*redistest.Path // by the server's address
	nodes []*redis.Client
}

func (l *slowLink) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	p := l.paths[addr]
	if p == nil {
		p = redistest.StartPath(l.t, addr)
		p.Delay(l.delay)
		l.paths[addr] = p
	}
	l.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, p.Addr())
}

func (l *slowLink) setDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
	for _, p := range l.paths {
		p.Delay(d)
	}
}

func (l *slowLink) client(t *testing.T, s *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: l.dial})
	t.Cleanup(func() { _ = client.Close() })
	l.nodes = append(l.nodes, client)
	return client
}

// A slow link costs no lease. A process that has made a connection may need up to a quarter of the
// TTL for a round trip. One that has none needs several to make it, and its renewals must not have
// to make another one in time.
func TestSlow_aLinkCostsNothingWhateverConnectionsThereAre(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	servers, sentinel, cluster := redistest.StartN(t, 3), redistest.StartSentinel(t), redistest.StartCluster(t)
	for name, c := range map[string]struct {
		cold   time.Duration // the longest round trip for a first call, see docs/options.md
		locker func(t *testing.T, link *slowLink) guard.Locker
	}{
		"single": {ttl / 12, func(t *testing.T, link *slowLink) guard.Locker {
			return single.New(link.client(t, servers[0]))
		}},
		"reentrant": {ttl / 12, func(t *testing.T, link *slowLink) guard.Locker {
			return reentrant.New(link.client(t, servers[0]))
		}},
		"redlock": {ttl / 16, func(t *testing.T, link *slowLink) guard.Locker {
			var nodes []guard.Locker
			for _, s := range servers {
				nodes = append(nodes, single.New(link.client(t, s)))
			}
			return redlock.New(nodes)
		}},
		"cluster": {ttl / 16, func(t *testing.T, link *slowLink) guard.Locker {
			return single.New(cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer, o.DisableIdentity = link.dial, false }))
		}},
		"sentinel": {ttl / 25, func(t *testing.T, link *slowLink) guard.Locker {
			return single.New(sentinel.Client(t, func(o *redis.FailoverOptions) { o.Dialer, o.DisableIdentity = link.dial, false }))
		}},
	} {
		for _, warm := range []bool{false, true} {
			delay := c.cold
			if warm {
				delay = ttl / 6
			}
			t.Run(fmt.Sprintf("%s, warm %t, %v of TTL %v", name, warm, delay, ttl), func(t *testing.T) {
				t.Parallel()
				link := &slowLink{t: t, paths: map[string]*redistest.Path{}}
				g, err := guard.New(c.locker(t, link), guard.WithTTL(ttl))
				require.NoError(t, err)
				key := t.Name()
				if warm {
					for _, node := range link.nodes { // a call of redlock does not wait for all
						require.NoError(t, node.Ping(t.Context()).Err())
					}
					require.NoError(t, g.Do(t.Context(), key, nothing))
				}
				link.setDelay(delay)
				require.NoError(t, g.Do(t.Context(), key, func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(2 * ttl):
						return nil
					}
				}))
				link.setDelay(0)
				require.NoError(t, g.Close(t.Context()))
			})
		}
	}
}
