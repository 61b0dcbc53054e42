package single_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

// ttl is short, so that leases end within a test, and long beside what a loaded machine adds.
const ttl = time.Second

// late is by how much a context may end after the moment at which it should.
const late = 20 * time.Millisecond

// newGuard returns a Guard over the client, closed with the test.
func newGuard(t *testing.T, rdb redis.UniversalClient, opts ...guard.Option) *guard.Guard {
	t.Helper()
	hook := guard.WithHook(faultmetrics.Watch(t, shows).Hook)
	g, err := guard.New(single.New(rdb), append([]guard.Option{guard.WithTTL(ttl), hook}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.Close(ctx) // which reports claims that the fault keeps it from releasing
	})
	return g
}

// acquire takes the key, and gives it back with the test if the test does not.
func acquire(t *testing.T, g *guard.Guard, key string, opts ...guard.Option) *guard.Lease {
	t.Helper()
	lease, err := g.Acquire(t.Context(), key, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// requireLost waits for the lease's context to end and returns how long after the call that was.
func requireLost(t *testing.T, lease *guard.Lease, reason guard.LossReason) time.Duration {
	t.Helper()
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	start := time.Now()
	select {
	case <-lease.Context().Done():
	case <-time.After(10 * ttl):
		require.Fail(t, "the context has not ended")
	}
	var lost *guard.LostError
	require.ErrorAs(t, context.Cause(lease.Context()), &lost)
	require.Equal(t, reason, lost.Reason, "%v", lost)
	if lost.Late >= late {
		held := stalls.Since(start)
		require.Less(t, lost.Late-held, late, "it ended %v late, of which the machine held us up for %v", lost.Late, held)
	}
	require.False(t, lease.Valid())
	return time.Since(start)
}

// requireHeld asserts that the lease is valid all the time for d.
func requireHeld(t *testing.T, lease *guard.Lease, d time.Duration) {
	t.Helper()
	require.Never(t, func() bool { return !lease.Valid() }, d, 5*time.Millisecond, "%v", context.Cause(lease.Context()))
	require.NoError(t, context.Cause(lease.Context()))
}

func TestFault7_replyLostOnAcquire(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	g := newGuard(t, client(t, proxy.Addr()))
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	server.ResetStats(t)
	proxy.DropReplyTo("evalsha", 1)
	ran := 0
	require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error { ran++; return nil }))
	require.Equal(t, 1, ran, "its own claim is recognised")
	require.GreaterOrEqual(t, server.Calls(t)["evalsha"], int64(3), "it was asked for twice, and released")
	require.NoError(t, newGuard(t, server.Client(t)).Do(t.Context(), "k", nothing), "and released once for all")
}

func TestFault7_replyLostOnRelease(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guard.Option{
		"plain": nil, "once": {guard.WithOnce(time.Minute)}, "min hold": {guard.WithMinHold(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr())
			g := newGuard(t, client(t, proxy.Addr()), guard.WithTTL(10*ttl)) // no renewal is due
			require.NoError(t, g.Do(t.Context(), "warm", nothing))
			require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error {
				server.ResetStats(t)
				proxy.DropReplyTo("evalsha", 1)
				return nil
			}, opts...), "a release that was done is no loss")
			require.EqualValues(t, 2, server.Calls(t)["evalsha"], "it was sent twice")
		})
	}
}

func TestFaults10to12_keyGoneUnderTheHolder(t *testing.T) {
	t.Parallel()
	const ttl = 3 * ttl // a busy machine adds some 100 ms to an answer
	server := redistest.Start(t)
	rdb := server.Client(t)
	lease := leaseKey(t, rdb, "k")
	for name, fault := range map[string]func() error{
		"deleted":     func() error { return rdb.Del(t.Context(), lease).Err() },
		"flushed":     func() error { return rdb.FlushAll(t.Context()).Err() },
		"overwritten": func() error { return rdb.Set(t.Context(), lease, "another's", time.Minute).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { flush(t, rdb) })
			g := newGuard(t, rdb, guard.WithTTL(ttl))
			held := acquire(t, g, "k")
			require.NoError(t, fault())
			waited := requireLost(t, held, guard.LossNotHeld)
			require.Less(t, waited, ttl*2/3, "at the next renewal")
			require.ErrorIs(t, held.Release(t.Context()), guard.ErrLost)
			if name == "overwritten" {
				require.Equal(t, "another's", rdb.Get(t.Context(), lease).Val(), "and left as it is")
				return
			}
			next := acquire(t, g, "k")
			require.Greater(t, next.Fence(), held.Fence())
		})
	}
}

func TestFault11_fencesGrowAcrossAFlushInTheSameInstant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	g := newGuard(t, rdb)
	var highest uint64
	for range 200 {
		require.NoError(t, g.Do(t.Context(), "k", func(ctx context.Context) error {
			require.Greater(t, guard.Fence(ctx), highest)
			highest = guard.Fence(ctx)
			return nil
		}))
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
	}
}

func TestFault14_scriptThatBlocksTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--busy-reply-threshold", "50")
	rdb := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	g := newGuard(t, rdb, guard.WithTTL(2*time.Second))
	lease := acquire(t, g, "k")
	blocked := make(chan error, 1)
	go func() { blocked <- rdb.Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() != nil }, time.Second, time.Millisecond)
	var failed *guard.StoreError
	require.ErrorAs(t, g.Do(t.Context(), "other", nothing), &failed)
	require.Equal(t, driver.KindScriptBusy, failed.Kind)
	requireHeld(t, lease, time.Second) // into the first renewal
	require.NoError(t, rdb.ScriptKill(t.Context()).Err())
	require.Error(t, <-blocked)
	requireHeld(t, lease, 2*time.Second) // renewed as soon as it could be
	require.NoError(t, lease.Release(t.Context()))
}

func TestFault16_serverThatRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	g := newGuard(t, rdb)
	require.NoError(t, g.Do(t.Context(), "k", nothing))
	for _, c := range []struct {
		kind       driver.StoreErrorKind
		fault, end func() error
	}{
		{driver.KindReadOnly,
			func() error { return rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err() },
			func() error { return rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err() }},
		{driver.KindNoReplicas,
			func() error { return rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err() },
			func() error { return rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err() }},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			require.NoError(t, c.fault())
			var failed *guard.StoreError
			require.ErrorAs(t, g.Do(t.Context(), "k", nothing), &failed)
			require.Equal(t, c.kind, failed.Kind)
			time.AfterFunc(300*time.Millisecond, func() { _ = c.end() })
			require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(5*time.Second)), "waiting outlasts it")
		})
	}
	t.Run("maxclients", func(t *testing.T) {
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxclients", "1").Err())
		full := newGuard(t, client(t, server.Addr()), guard.WithTTL(10*time.Second))
		var failed *guard.StoreError
		require.ErrorAs(t, full.Do(t.Context(), "k", nothing), &failed)
		// Redis says why and closes the connection: the reset can overtake the words.
		require.Contains(t, []driver.StoreErrorKind{driver.KindLimit, driver.KindConnection}, failed.Kind)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxclients", "100").Err())
		require.NoError(t, full.Do(t.Context(), "k", nothing))
	})
}

func TestFault16_serverThatIsLoading(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	rdb := server.Client(t)
	g := newGuard(t, rdb, guard.WithTTL(10*time.Second))
	lease := acquire(t, g, "k")
	require.NoError(t, rdb.Do(t.Context(), "DEBUG", "POPULATE", 2000).Err())
	require.NoError(t, rdb.Save(t.Context()).Err())
	server.Restart()
	var failed *guard.StoreError
	require.ErrorAs(t, g.Do(t.Context(), "other", nothing), &failed)
	require.Equal(t, driver.KindLoading, failed.Kind)
	require.NoError(t, g.Do(t.Context(), "other", nothing, guard.WithWait(20*time.Second)), "waiting outlasts it")
	require.True(t, lease.Valid())
	require.NoError(t, lease.Release(t.Context()), "a lease that was saved is still ours")
}

func TestFault20_failoverThatForgetsTheLease(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	rdb := sentinel.Client(t)
	g := newGuard(t, rdb, guard.WithTTL(10*time.Second)) // a failover takes 6 s on a busy machine
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	sentinel.Replica.Freeze()
	require.NoError(t, sentinel.Master.Client(t).ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	lease := acquire(t, g, "k")
	sentinel.Master.Kill()
	sentinel.Replica.Thaw()
	sentinel.WaitFailover(t)
	next, err := g.Acquire(t.Context(), "k", guard.WithWait(10*time.Second))
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence(), "the resource can tell them apart")
	requireLost(t, lease, guard.LossNotHeld)
	require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	require.True(t, next.Valid(), "the first holder's release has not touched it")
	require.NoError(t, next.Release(t.Context()))
}

func TestFault21_slotMovesUnderAHeldLease(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	g := newGuard(t, rdb)
	lease := acquire(t, g, "k")
	store := single.New(rdb)
	grant, err := store.TryAcquire(t.Context(), driver.Claim{Key: "k", ID: "other", TTL: ttl})
	require.NoError(t, err)
	require.Equal(t, driver.Busy, grant.State)

	var slot int
	for _, node := range cluster.Nodes {
		keys, err := node.Client(t).Keys(t.Context(), "onerun:*").Result()
		require.NoError(t, err)
		if len(keys) > 0 {
			slot = cluster.SlotOf(t, keys[0])
		}
	}
	from := cluster.OwnerOf(t, slot)
	to := cluster.Other(from)
	cluster.MoveSlot(t, slot, from, to)
	requireHeld(t, lease, 3*ttl) // renewal follows the slot
	require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, g.Do(t.Context(), "k", nothing))
}

func TestFaults_aLeaseWithoutATTLEndsWithinADay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	l := single.New(server.Client(t))
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	lease := leaseKey(t, admin, "key1")
	require.True(t, admin.Persist(t.Context(), lease).Val())

	other := claimOf(1)
	other.ID = "other"
	grant, err := l.TryAcquire(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, driver.Busy, grant.State)
	require.Equal(t, 24*time.Hour, grant.Left)
	require.InDelta(t, 24*time.Hour, admin.PTTL(t.Context(), lease).Val(), float64(time.Minute))
	held, err := l.Renew(t.Context(), claimOf(1))
	require.NoError(t, err)
	require.True(t, held)
	require.LessOrEqual(t, admin.PTTL(t.Context(), lease).Val(), time.Minute, "its holder lives")
}

func TestFault8_slowAcquireCountsFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := client(t, proxy.Addr())
	const ttl = 2 * ttl // a busy machine adds some 100 ms to an answer
	g := newGuard(t, rdb, guard.WithTTL(ttl))
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	for _, delay := range []time.Duration{ttl / 2, ttl * 3 / 4} {
		proxy.Delay(delay)
		var lease *guard.Lease
		redistest.Within(t, ttl, "from the request to the end of the lease", func() {
			var err error
			lease, err = g.Acquire(t.Context(), "k", guard.WithoutRenewal())
			proxy.Delay(0)
			require.NoError(t, err)
			requireLost(t, lease, guard.LossExpired)
		})
		_ = lease.Release(t.Context())
	}
	proxy.Delay(ttl * 11 / 10)
	_, err := g.Acquire(t.Context(), "k")
	require.ErrorIs(t, err, guard.ErrStore)
	proxy.Delay(0)
	requireFree(t, server.Client(t), "k")
}

// requireFree asserts that somebody else gets the key soon.
func requireFree(t *testing.T, rdb redis.UniversalClient, key string) {
	t.Helper()
	require.NoError(t, newGuard(t, rdb).Do(t.Context(), key, nothing, guard.WithWait(5*time.Second)))
}
