package backend_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A user that has the rights of docs/acl.md, and no other, is refused nothing.
func TestLong_linesOfTheDocsForACLsAreEnough(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	type setup struct {
		locker    func(rdb redis.UniversalClient) guard.Locker
		opts      []guard.Option
		cluster   bool
		replica   bool
		logs      bool
		shares    bool
		readWrite bool
		inspects  bool
		byKey     bool // without the right to list keys
		quorum    bool // the line is that of its nodes
	}
	onSingle := func(opts ...single.Option) func(redis.UniversalClient) guard.Locker {
		return func(rdb redis.UniversalClient) guard.Locker { return single.New(rdb, opts...) }
	}
	fair := []guard.Option{guard.WithFair()}
	setups := map[string]setup{
		"single":                          {locker: onSingle()},
		"single, WithFair":                {locker: onSingle(), opts: fair},
		"single, WithShared or WithLimit": {locker: onSingle(), shares: true},
		"single, WithMinUptime":           {locker: onSingle(single.WithMinUptime(time.Second)), opts: []guard.Option{guard.WithTTL(time.Second)}},
		"single, WithReplicas":            {locker: onSingle(single.WithReplicas(1, time.Second)), replica: true},
		"single, cron":                    {locker: onSingle(), logs: true},
		"single, WithPlainKeys":           {locker: onSingle(single.WithPlainKeys(func(key string) string { return key }))},
		"single, Cluster":                 {locker: onSingle(), cluster: true},
		"reentrant":                       {locker: backends["reentrant"], shares: true},
		"reentrant, WithFair":             {locker: backends["reentrant"], opts: fair, shares: true},
		"reentrant, WithReadWrite": {
			locker: func(rdb redis.UniversalClient) guard.Locker {
				return reentrant.New(rdb, reentrant.WithReadWrite())
			},
			readWrite: true,
		},
		"single, package inspect":                  {locker: onSingle(), opts: fair, shares: true, logs: true, inspects: true},
		"reentrant, package inspect":               {locker: backends["reentrant"], opts: fair, shares: true, logs: true, inspects: true},
		"single, package inspect without lists":    {locker: onSingle(), opts: fair, shares: true, logs: true, inspects: true, byKey: true},
		"reentrant, package inspect without lists": {locker: backends["reentrant"], opts: fair, shares: true, logs: true, inspects: true, byKey: true},
		"reentrant, cron":                          {locker: backends["reentrant"], logs: true},
		"single, node of a RedLock":                {locker: onSingle(), quorum: true},
		"reentrant, node of a RedLock":             {locker: backends["reentrant"], quorum: true},
	}
	lines := redistest.ACLLines(t, "../docs/acl.md")
	require.Len(t, lines, len(setups))
	for name, c := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, connect := aclServers(t, c.cluster, c.replica)
			newLocker := func() guard.Locker { return c.locker(connect()) }
			if c.quorum {
				servers, newLocker = aclQuorum(t, c.locker)
			}
			useLine(t, servers, lines[name])
			locker := newLocker()
			opts := append([]guard.Option{guard.WithTTL(time.Minute), guard.WithWait(time.Minute)}, c.opts...)
			g, other := guardWith(t, locker, opts), guardWith(t, newLocker(), opts)
			if name == "single, WithMinUptime" {
				awaitUptime(t, servers[0], 1)
			}
			use(t, g, other)
			if c.shares {
				share(t, g, other)
			}
			if c.readWrite {
				shareWithJava(t, servers[0], g, other)
			}
			if c.logs {
				ledger := locker.(driver.Ledger)
				require.NoError(t, ledger.Append(t.Context(), "log", driver.Entry{At: 1, Record: []byte("r")}, 10))
				_, err := driver.Entries(t.Context(), ledger, "log", 10)
				require.NoError(t, err)
				_, err = ledger.Raise(t.Context(), "log", "counter", 1)
				require.NoError(t, err)
			}
			if c.inspects {
				inspect(t, locker.(driver.Inspector), g, c.byKey)
			}
			for _, server := range servers {
				denied, err := server.Client(t).ACLLog(t.Context(), 100).Result()
				require.NoError(t, err)
				for _, entry := range denied {
					if entry.Username == "app" && !strings.HasPrefix(entry.Object, "client") {
						require.Fail(t, "denied", "%s %s %s", entry.Reason, entry.Context, entry.Object)
					}
				}
			}
		})
	}
}

// A user that has no rights to sorted sets gets the error of the server. The script once took it
// for a key of another type: the first reader got the key alone, and lost it at its first renewal.
func TestACL_claimsThatShareFailWithoutTheirRights(t *testing.T) {
	t.Parallel()
	servers, connect := aclServers(t, false, false)
	useLine(t, servers, redistest.ACLLines(t, "../docs/acl.md")["single"])
	g, err := guard.New(single.New(connect()), guard.WithTTL(5*time.Second))
	require.NoError(t, err)
	defer g.Close(context.Background()) // whose error names the claims that could not be released
	for name, opt := range map[string]guard.Option{"shared": guard.WithShared(), "limit": guard.WithLimit(3)} {
		_, err := g.Acquire(t.Context(), "import:"+name, opt)
		var failed *guard.StoreError
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, driver.KindAuth, failed.Kind, "%s: %v", name, err)
		lease, err := g.Acquire(t.Context(), "import:"+name)
		require.NoError(t, err, "the key stayed free")
		require.NoError(t, lease.Release(t.Context()))
	}
}

// useLine makes the user of a line of docs/acl.md.
func useLine(t *testing.T, servers []*redistest.Server, line string) {
	t.Helper()
	require.NotEmpty(t, line)
	for _, server := range servers {
		var args []any
		for _, arg := range strings.Fields(line) {
			args = append(args, arg)
		}
		admin := server.Client(t)
		// what the user had before, which the line takes away
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">old", "~*", "&*", "+@all").Err())
		require.NoError(t, admin.Do(t.Context(), args...).Err())
		require.Error(t, admin.Do(t.Context(), "AUTH", "app", "old").Err())
		require.NoError(t, admin.ACLLogReset(t.Context()).Err())
		user := fmt.Sprint(admin.Do(t.Context(), "ACL", "GETUSER", "app").Val())
		require.NotContains(t, user, "~* ")
		require.NotContains(t, user, "+@all")
	}
}

// aclServers starts the servers, and returns how to connect to them as the user of docs/acl.md.
func aclServers(t *testing.T, cluster, replica bool) ([]*redistest.Server, func() redis.UniversalClient) {
	t.Helper()
	if cluster {
		c := redistest.StartCluster(t)
		return c.Nodes, func() redis.UniversalClient {
			var addrs []string
			for _, n := range c.Nodes {
				addrs = append(addrs, n.Addr())
			}
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "app", Password: "secret"})
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			return rdb
		}
	}
	server := redistest.Start(t)
	if replica {
		host, port, err := net.SplitHostPort(server.Addr())
		require.NoError(t, err)
		redistest.Start(t, "--replicaof", host, port)
		admin := server.Client(t)
		require.Eventually(t, func() bool {
			return strings.Contains(admin.Info(t.Context(), "replication").Val(), "state=online")
		}, settled, 10*time.Millisecond)
	}
	return []*redistest.Server{server}, func() redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		return rdb
	}
}

// aclQuorum starts the servers of a quorum, and returns how to connect to them as the user of
// docs/acl.md.
func aclQuorum(t *testing.T, node func(redis.UniversalClient) guard.Locker) (servers []*redistest.Server, newLocker func() guard.Locker) {
	t.Helper()
	var connects []func() redis.UniversalClient
	for range 3 {
		server, connect := aclServers(t, false, false)
		servers, connects = append(servers, server...), append(connects, connect)
	}
	return servers, func() guard.Locker {
		var nodes []driver.Locker
		for _, connect := range connects {
			nodes = append(nodes, node(connect()))
		}
		return redlock.New(nodes)
	}
}

func guardWith(t *testing.T, locker guard.Locker, opts []guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(locker, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close(context.Background())) })
	return g
}

// inspect does what operators do: look at each kind of key, and change it. If byKey, they know the
// keys.
func inspect(t *testing.T, i driver.Inspector, g *guard.Guard, byKey bool) {
	t.Helper()
	ctx := t.Context()
	const prefix = "import:inspect "
	held, err := g.Acquire(ctx, prefix+"held")
	require.NoError(t, err)
	shared, err := g.Acquire(ctx, prefix+"shared", guard.WithLimit(3))
	require.NoError(t, err)
	require.NoError(t, g.Do(ctx, prefix+"done", func(context.Context) error { return nil }, guard.WithOnce(time.Minute)))
	keys := []string{prefix + "held", prefix + "shared", prefix + "done"}
	if !byKey {
		listed, next, err := i.Keys(ctx, prefix, "", 100)
		require.NoError(t, err)
		require.Empty(t, next)
		require.ElementsMatch(t, keys, listed)
	}
	for _, key := range keys {
		info, err := i.Show(ctx, key)
		require.NoError(t, err)
		require.GreaterOrEqual(t, info.Subscribers, 0)
	}
	for _, l := range []*guard.Lease{held, shared} {
		for _, b := range []driver.Break{{ID: "operator"}, {Now: true}} {
			id := l.ID()
			if b.Now {
				id = "operator"
			}
			broken, err := i.Break(ctx, l.Key(), id, b)
			require.NoError(t, err)
			require.True(t, broken)
		}
		require.ErrorIs(t, l.Release(ctx), guard.ErrLost)
	}
	forgotten, err := i.Forget(ctx, prefix+"done")
	require.NoError(t, err)
	require.True(t, forgotten)
}

// use does what applications do: many calls, a waiter that is notified, and a done marker.
func use(t *testing.T, g, other *guard.Guard) {
	t.Helper()
	nothing := func(context.Context) error { return nil }
	for i := range 20 { // more than it takes for connections of our own
		require.NoError(t, g.Do(t.Context(), "import:k", nothing), i)
	}
	done := make(chan error, 100)
	for i := range cap(done) { // some share a script
		go func() { done <- g.Do(t.Context(), fmt.Sprint("import:", i), nothing) }()
	}
	for range cap(done) {
		require.NoError(t, <-done)
	}
	lease, err := g.Acquire(t.Context(), "import:k")
	require.NoError(t, err)
	waiting, came := make(chan struct{}), make(chan error, 1)
	go func() {
		came <- other.Do(t.Context(), "import:k", nothing, guard.WithHook(guard.Hook{
			Wait: func(context.Context, guard.WaitEvent) { close(waiting) },
		}))
	}()
	<-waiting
	start := time.Now()
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, <-came)
	require.Less(t, time.Since(start), 15*time.Second, "it was notified")
	require.NoError(t, g.Do(t.Context(), "import:done", nothing, guard.WithOnce(time.Minute)))
	require.ErrorIs(t, other.Do(t.Context(), "import:done", nothing), guard.ErrDone)
}

// share does what applications do with keys that they share: readers, and a writer that waits.
func share(t *testing.T, g, other *guard.Guard) {
	t.Helper()
	first, err := g.Acquire(t.Context(), "import:k", guard.WithShared())
	require.NoError(t, err)
	second, err := other.Acquire(t.Context(), "import:k", guard.WithLimit(3))
	require.NoError(t, err)
	require.Equal(t, 1, second.Seat())
	third, err := other.Acquire(t.Context(), "import:k", guard.WithLimit(3))
	require.NoError(t, err)
	require.Equal(t, 2, third.Seat())
	waiting, came := make(chan struct{}), make(chan error, 1)
	go func() {
		came <- other.Do(t.Context(), "import:k", func(context.Context) error { return nil }, guard.WithHook(guard.Hook{
			Wait: func(context.Context, guard.WaitEvent) { close(waiting) },
		}))
	}()
	<-waiting
	start := time.Now()
	for _, lease := range []*guard.Lease{first, second, third} {
		require.NoError(t, lease.Release(t.Context()))
	}
	require.NoError(t, <-came)
	require.Less(t, time.Since(start), 15*time.Second, "it was notified")
}

// shareWithJava has a writer wait for two readers, one of which is Redisson's and dies.
func shareWithJava(t *testing.T, server *redistest.Server, g, other *guard.Guard) {
	t.Helper()
	nothing := func(context.Context) error { return nil }
	_, ok, err := redissontest.New(server.Client(t)).ReadLock("import:k").TryLock(t.Context(), 1, 500*time.Millisecond)
	require.NoError(t, err)
	require.True(t, ok)
	lease, err := g.Acquire(t.Context(), "import:k", guard.WithShared(), guard.WithTTL(time.Second))
	require.NoError(t, err)
	came := make(chan error, 1)
	go func() { came <- other.Do(t.Context(), "import:k", nothing) }()
	require.Eventually(t, func() bool {
		err := other.Do(t.Context(), "import:k", nothing, guard.WithShared(), guard.WithTTL(10*time.Second), guard.WithWait(time.Millisecond))
		return errors.Is(err, guard.ErrBusy)
	}, settled, 10*time.Millisecond, "the writer is wanted")
	// the reader's TTL: the release succeeds only if the lease was renewed
	time.Sleep(time.Second)
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, <-came)
}

// awaitUptime waits until the server says that it has been up for longer than so many seconds.
func awaitUptime(t *testing.T, server *redistest.Server, seconds int) {
	t.Helper()
	require.Eventually(t, func() bool {
		info, err := server.Client(t).InfoMap(t.Context(), "server").Result()
		require.NoError(t, err)
		up, err := strconv.Atoi(info["Server"]["uptime_in_seconds"])
		require.NoError(t, err)
		return up > seconds
	}, settled, 100*time.Millisecond)
}
