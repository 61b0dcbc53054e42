package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

// A quorum is so many servers, each with a proxy in front of it.
type quorum struct {
	servers []*redistest.Server
	proxies []*redistest.Proxy
	direct  []*redis.Client // past the proxies
}

func startQuorum(t testing.TB, n int) *quorum {
	q := &quorum{servers: redistest.StartN(t, n)}
	for _, s := range q.servers {
		q.proxies = append(q.proxies, redistest.StartProxy(t, s.Addr()))
		q.direct = append(q.direct, s.Client(t))
	}
	return q
}

// locker returns a Locker on the servers, by way of the proxies, with clients of its own: those of
// another process.
func (q *quorum) locker(t testing.TB) *redlock.Locker {
	var nodes []guard.Locker
	for _, p := range q.proxies {
		nodes = append(nodes, single.New(p.Client(t)))
	}
	if t, ok := t.(*testing.T); ok {
		return redlock.New(nodes, redlock.WithHook(faultmetrics.Watch(t, shows).Hook))
	}
	return redlock.New(nodes)
}

// present returns the servers that store something for a key.
func (q *quorum) present(t testing.TB, key string) (on []int) {
	t.Helper()
	for i, rdb := range q.direct {
		keys, err := rdb.Keys(t.Context(), "*:lease:"+key).Result()
		require.NoError(t, err)
		if len(keys) > 0 {
			on = append(on, i)
		}
	}
	return on
}

// held returns on how many servers the lease is held, under its fence. It calls look only for
// servers that have something of the key, because look takes a free key for a moment.
func (q *quorum) held(t testing.TB, lease *guard.Lease) (n int) {
	t.Helper()
	fence := lease.Fence()
	for _, i := range q.present(t, lease.Key()) {
		if h := look(t, single.New(q.direct[i]), lease.Key()); h.state == driver.Busy && h.fence == fence {
			n++
		}
	}
	return n
}

// requireFree waits until no server has anything of the key.
func (q *quorum) requireFree(t testing.TB, key string, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool { return len(q.present(t, key)) == 0 }, within, 20*time.Millisecond, "the key %q is held", key)
}
