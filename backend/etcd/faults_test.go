package etcd_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// long is a TTL that does not pass while a test runs.
const long = 10 * time.Minute

func claim(key string) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: long}
}

// within returns a context that ends after a time.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// awaitGrant makes the claim until it is granted: the servers may be electing a leader.
func awaitGrant(t testing.TB, l *etcd.Locker, c driver.Claim) driver.Answer {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		g, err := l.TryAcquire(ctx, c)
		cancel()
		if err == nil && g.State == driver.Granted {
			return g
		}
		require.True(t, time.Now().Before(deadline), "the last answer is %v, %v", g, err)
	}
}

// An empty server begins with revision 1 again.
func TestFences_growAcrossTheLossOfAllData(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	l := etcd.New(connect(t, server))
	last := uint64(0)
	for range 2 {
		for range 10 {
			c := claim("key")
			c.Fences.Reserve = 64
			g := awaitGrant(t, l, c)
			require.Greater(t, g.Fence, last)
			require.Equal(t, 63, g.Reserved)
			last = g.Fence + uint64(g.Reserved)
			held, err := l.Release(within(t, 20*time.Second), c, driver.After{})
			require.NoError(t, err)
			require.True(t, held)
		}
		server.Kill()
		server.Erase(t)
		server.Restart(t)
	}
}

// What a grant has reserved is below the fences of later grants, so a hand-off in a process sets no
// clock forward. If each did, fences would get ahead of the clocks of processes, and would go back
// if all data were lost.
func TestFences_areReservedWithoutTheClock(t *testing.T) {
	t.Parallel()
	client := connect(t, etcdtest.Start(t))
	l, c := etcd.New(client), claim("key")
	c.Fences.Reserve = 63
	c.Fence = awaitGrant(t, l, c).Fence
	clock := func() string {
		answer, err := client.Get(within(t, 20*time.Second), "onerun/clock")
		require.NoError(t, err)
		require.Len(t, answer.Kvs, 1)
		return string(answer.Kvs[0].Value)
	}
	before := clock()
	c.Fence, c.Fences.Reserve = c.Fence+63, 0
	held, err := l.Renew(within(t, 20*time.Second), c)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, before, clock())
	held, err = l.Release(within(t, 20*time.Second), c, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
	require.Greater(t, awaitGrant(t, l, claim("key")).Fence, c.Fence)
}

// A value that was spoilt by hand fails its own renewal alone.
func TestRenew_ofASpoiltClaimFailsAlone(t *testing.T) {
	t.Parallel()
	client := connect(t, etcdtest.Start(t))
	l, spoilt, sound := etcd.New(client), claim("spoilt"), claim("sound")
	awaitGrant(t, l, spoilt)
	awaitGrant(t, l, sound)
	_, err := client.Put(within(t, 20*time.Second), "onerun/h/spoilt\x00"+spoilt.ID, "?", clientv3.WithIgnoreLease())
	require.NoError(t, err)
	errs := make([]error, 2)
	driver.Await(within(t, 20*time.Second), l, driver.OpRenew, []driver.Claim{spoilt, sound}, driver.After{},
		func(i int, a driver.Answer, err error) {
			errs[i] = err
			require.Equal(t, i == 1, a.Held)
		})
	require.ErrorContains(t, errs[0], "made no sense")
	require.NoError(t, errs[1])
}

// A server that was killed has every lease that it has granted.
func TestServer_isKilledAndKeepsLeases(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	l, other := etcd.New(connect(t, server)), etcd.New(connect(t, server))
	held, done := claim("held"), claim("done")
	fence := awaitGrant(t, l, held).Fence
	awaitGrant(t, l, done)
	_, err := l.Release(within(t, 20*time.Second), done, driver.After{Keep: long, Done: true, Record: []byte("record")})
	require.NoError(t, err)
	server.Kill()
	_, err = other.TryAcquire(within(t, 300*time.Millisecond), claim("held"))
	var store *driver.StoreError
	require.ErrorAs(t, err, &store)
	require.Contains(t, []driver.StoreErrorKind{driver.KindConnection, driver.KindTimeout}, store.Kind)
	server.Restart(t)
	busy, err := other.TryAcquire(within(t, 20*time.Second), claim("held"))
	require.NoError(t, err)
	require.Equal(t, driver.Busy, busy.State)
	require.Equal(t, held.ID, busy.Holder)
	again := awaitGrant(t, l, held)
	require.Equal(t, []any{true, fence}, []any{again.Held, again.Fence})
	marker, err := other.TryAcquire(within(t, 20*time.Second), claim("done"))
	require.NoError(t, err)
	require.Equal(t, driver.Done, marker.State)
	require.Equal(t, "record", string(marker.Record))
}

// A database that is full accepts no writes: nothing is granted, and what is held stays so.
func TestServer_thatIsFullGrantsNothing(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, quota)
	client := connect(t, server)
	l := etcd.New(client)
	c := claim("held")
	awaitGrant(t, l, c)
	fill(t, client)
	_, err := l.TryAcquire(within(t, 20*time.Second), claim("key"))
	var store *driver.StoreError
	require.ErrorAs(t, err, &store)
	require.Equal(t, driver.KindOOM, store.Kind)
	held, err := l.Renew(within(t, 20*time.Second), c)
	require.NoError(t, err)
	require.True(t, held)
	require.Condition(t, func() bool {
		for _, w := range l.Warnings(within(t, 20*time.Second)) {
			if w != nil {
				return true
			}
		}
		return false
	}, "an operator is warned")
	released, err := l.Release(within(t, 20*time.Second), c, driver.After{})
	require.NoError(t, err)
	require.True(t, released)
}

// quota is the setting of a server whose database is soon full.
const quota = "quota-backend-bytes=3000000"

func fill(t testing.TB, client *clientv3.Client) {
	t.Helper()
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = client.Put(within(t, 20*time.Second), fmt.Sprint("fill", i), string(make([]byte, 500_000)))
	}
	require.ErrorContains(t, err, "space")
}

// A server that is cut off from the others answers that it has no leader, and the client goes on to
// the next one. Otherwise, one of the three requests of each grant would wait there.
func TestServer_withoutALeaderIsPassedOver(t *testing.T) {
	t.Parallel()
	server, cut := etcdtest.Start(t), etcdtest.StartCluster(t, 3)
	cut[1].Kill()
	cut[2].Kill()
	require.Eventually(t, func() bool {
		status, err := connect(t, cut[0]).Status(within(t, time.Second), cut[0].Endpoints()[0])
		return err == nil && status.Leader == 0
	}, time.Minute, 100*time.Millisecond)
	l := etcd.New(connect(t, server, cut[0])) // that it is another cluster makes no difference
	for i := range 5 {
		ctx, c := within(t, 20*time.Second), claim(fmt.Sprint("key", i))
		g, err := l.TryAcquire(ctx, c)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
		held, err := l.Renew(ctx, c)
		require.NoError(t, err)
		require.True(t, held)
		held, err = l.Release(ctx, c, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
	}
}

// Two prefixes on one server are two stores.
func TestWithPrefix_separates(t *testing.T) {
	t.Parallel()
	client := connect(t, etcdtest.Start(t))
	c := claim("key")
	awaitGrant(t, etcd.New(client), c)
	awaitGrant(t, etcd.New(client, etcd.WithPrefix("jobs/")), c)
	_, err := guard.New(etcd.New(client, etcd.WithPrefix("jobs")))
	require.ErrorContains(t, err, "WithPrefix(jobs): must end with a slash")
	_, err = guard.New(etcd.New(nil))
	require.ErrorContains(t, err, "client: must not be nil")
	g, err := guard.New(etcd.New(client))
	require.NoError(t, err)
	nothing := func(context.Context) error { return nil }
	require.ErrorContains(t, g.Do(t.Context(), "key", nothing, guard.WithFair(), guard.WithWait(time.Second)), "WithFair")
}

// The suite passes on three servers as well, with clients that use each of them.
func TestWeekly_clusterOfThree(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	guardtest.Run(t, suite(t, etcdtest.StartCluster(t, 3)...))
}

// A minority answers nothing, and the Guard ends all leases in time. No process gets a key from a
// majority before that.
func TestLong_minority(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	const n = 20
	servers := etcdtest.StartCluster(t, 3)
	c := hold(t, etcd.New(connect(t, servers...)), "held", n, 3*time.Second)
	defer c.claim(etcd.New(connect(t, servers...)))()
	servers[0].Kill()
	servers[1].Kill()
	require.Eventually(t, func() bool { return c.lost() == n }, time.Minute, 10*time.Millisecond)
	require.Zero(t, c.takeover())
	c.release()
	servers[0].Restart(t)
	require.Eventually(t, func() bool { return c.takeover() == n }, time.Minute, 10*time.Millisecond)
	c.end()
}
