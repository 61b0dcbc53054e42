package single_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

const (
	// ttl is for leases that are to end.
	ttl = time.Second
	// long is a TTL that does not pass while a test runs. Nor does half of it, after which a waiter
	// that was not notified asks.
	long = 2 * time.Minute
	// settled is how long a busy machine may take for what is over in a moment on another.
	settled = time.Minute
	// prompt is less than half of that TTL, and more than a machine pauses.
	prompt = long / 4
)

// newGuard returns a Guard over the client, closed with the test.
func newGuard(t *testing.T, rdb redis.UniversalClient, opts ...guard.Option) *guard.Guard {
	t.Helper()
	hook := guard.WithHook(faultmetrics.Watch(t, shows).Hook)
	g, err := guard.New(single.New(rdb), append([]guard.Option{guard.WithTTL(long), hook}, opts...)...)
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

// requireNotHeld waits until a renewal finds that the lease is lost.
func requireNotHeld(t *testing.T, lease *guard.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(settled):
		require.Fail(t, "the context has not ended")
	}
	var lost *guard.LostError
	require.ErrorAs(t, context.Cause(lease.Context()), &lost)
	require.Equal(t, guard.LossNotHeld, lost.Reason, "%v", lost)
	require.False(t, lease.Valid())
}

// renewed is the TTL of a lease that is to be renewed. There are seconds to try again.
const renewed = 6 * time.Second

// noteRenewals returns a hook of Guards, and the errors of their renewals.
func noteRenewals() (guard.Option, <-chan error) {
	renewals := make(chan error, 1000)
	return guard.WithHook(guard.Hook{Renew: func(_ context.Context, e guard.RenewEvent) { renewals <- e.Err }}), renewals
}

// awaitRenewal waits for a renewal that ends like that.
func awaitRenewal(t *testing.T, renewals <-chan error, is func(error) bool) {
	t.Helper()
	for deadline := time.After(settled); ; {
		select {
		case err := <-renewals:
			if is(err) {
				return
			}
		case <-deadline:
			require.Fail(t, "there was no such renewal")
			return
		}
	}
}

// requireRenewed waits until the lease has been renewed twice: the first renewal may have been
// under way.
func requireRenewed(t *testing.T, lease *guard.Lease, renewals <-chan error) {
	t.Helper()
	before := len(renewals)
	awaitRenewal(t, renewals, func(error) bool { before--; return before < 0 })
	awaitRenewal(t, renewals, func(err error) bool { return err == nil })
	require.True(t, lease.Valid())
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
			g := newGuard(t, client(t, proxy.Addr())) // no renewal is due
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
	const ttl = 9 * time.Second // a third is left if the machine pauses for another
	for name, fault := range map[string]func(t *testing.T, rdb *redis.Client, lease string) error{
		"deleted": func(t *testing.T, rdb *redis.Client, lease string) error { return rdb.Del(t.Context(), lease).Err() },
		"flushed": func(t *testing.T, rdb *redis.Client, _ string) error { return rdb.FlushAll(t.Context()).Err() },
		"overwritten": func(t *testing.T, rdb *redis.Client, lease string) error {
			return rdb.Set(t.Context(), lease, "another's", time.Minute).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			lease := leaseKey(t, rdb, "k")
			g := newGuard(t, rdb, guard.WithTTL(ttl))
			held := acquire(t, g, "k")
			require.NoError(t, fault(t, rdb, lease))
			requireNotHeld(t, held)
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
	hook, renewals := noteRenewals()
	g := newGuard(t, rdb, guard.WithTTL(renewed), hook)
	lease := acquire(t, g, "k")
	blocked := make(chan error, 1)
	go func() { blocked <- rdb.Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() != nil }, settled, time.Millisecond)
	var failed *guard.StoreError
	require.ErrorAs(t, g.Do(t.Context(), "other", nothing), &failed)
	require.Equal(t, driver.KindScriptBusy, failed.Kind)
	awaitRenewal(t, renewals, func(err error) bool { return errors.As(err, &failed) && failed.Kind == driver.KindScriptBusy })
	require.NoError(t, rdb.ScriptKill(t.Context()).Err())
	require.Error(t, <-blocked)
	awaitRenewal(t, renewals, func(err error) bool { return err == nil })
	require.True(t, lease.Valid(), "it was renewed as soon as it could be")
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
			require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(settled)), "waiting outlasts it")
		})
	}
	t.Run("maxclients", func(t *testing.T) {
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxclients", "1").Err())
		full := newGuard(t, client(t, server.Addr()))
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
	g := newGuard(t, rdb)
	lease := acquire(t, g, "k")
	// it loads for a minute, or until it is told
	require.NoError(t, rdb.Do(t.Context(), "DEBUG", "POPULATE", 60_000).Err())
	require.NoError(t, rdb.Save(t.Context()).Err())
	server.Restart()
	var failed *guard.StoreError
	require.ErrorAs(t, g.Do(t.Context(), "other", nothing), &failed)
	require.Equal(t, driver.KindLoading, failed.Kind)
	require.NoError(t, rdb.ConfigSet(t.Context(), "key-load-delay", "0").Err())
	require.NoError(t, g.Do(t.Context(), "other", nothing, guard.WithWait(settled)), "waiting outlasts it")
	require.True(t, lease.Valid())
	require.NoError(t, lease.Release(t.Context()), "a lease that was saved is still ours")
}

func TestFault20_failoverThatForgetsTheLease(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	rdb := sentinel.Client(t)
	g := newGuard(t, rdb, guard.WithTTL(20*time.Second)) // a failover takes 6 s on a busy machine
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	sentinel.Replica.Freeze()
	require.NoError(t, sentinel.Master.Client(t).ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	lease := acquire(t, g, "k")
	sentinel.Master.Kill()
	sentinel.Replica.Thaw()
	sentinel.WaitFailover(t)
	next, err := g.Acquire(t.Context(), "k", guard.WithWait(settled))
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence(), "the resource can tell them apart")
	requireNotHeld(t, lease)
	require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
	require.True(t, next.Valid(), "the first holder's release has not touched it")
	require.NoError(t, next.Release(t.Context()))
}

func TestFault21_slotMovesUnderAHeldLease(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	hook, renewals := noteRenewals()
	g := newGuard(t, rdb, guard.WithTTL(renewed), hook)
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
	requireRenewed(t, lease, renewals) // renewal follows the slot
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
	g := newGuard(t, client(t, proxy.Addr()))
	require.NoError(t, g.Do(t.Context(), "warm", nothing))
	proxy.HoldReplyTo("evalsha")
	before, leases := server.Calls(t)["evalsha"], make(chan *guard.Lease, 1)
	go func() {
		lease, err := g.Acquire(t.Context(), "k", guard.WithoutRenewal())
		assert.NoError(t, err)
		leases <- lease
	}()
	require.Eventually(t, func() bool { return server.Calls(t)["evalsha"] > before }, settled, time.Millisecond)
	sent := time.Now()
	time.Sleep(100 * time.Millisecond) // the answer takes that long
	proxy.ReleaseReplies()
	lease := <-leases
	require.NotNil(t, lease)
	require.True(t, lease.Valid())
	require.LessOrEqual(t, lease.ValidUntil(), sent.Add(long))
	require.NoError(t, lease.Release(t.Context()))

	proxy.HoldReplyTo("evalsha")
	_, err := g.Acquire(t.Context(), "k", guard.WithTTL(ttl))
	require.ErrorIs(t, err, guard.ErrStore)
	proxy.ReleaseReplies()
	requireFree(t, server.Client(t), "k")
}

// requireFree asserts that somebody else gets the key soon.
func requireFree(t *testing.T, rdb redis.UniversalClient, key string) {
	t.Helper()
	require.NoError(t, newGuard(t, rdb).Do(t.Context(), key, nothing, guard.WithWait(settled)))
}
