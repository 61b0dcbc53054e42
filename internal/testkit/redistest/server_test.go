package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestServer_isGoneWhenTheTestEnds(t *testing.T) {
	redistest.Require(t)
	var running, frozen int
	t.Run("inner", func(t *testing.T) {
		server, other := redistest.Start(t), redistest.Start(t)
		require.Equal(t, "PONG", server.Client(t).Ping(ctx).Val())
		other.Freeze()
		running, frozen = server.PID(), other.PID()
		require.True(t, lives(running))
		require.True(t, lives(frozen))
	})
	require.False(t, lives(running), "reaped before the test returned")
	require.False(t, lives(frozen), "reaped before the test returned")
}

func TestServer_takesArguments(t *testing.T) {
	client := redistest.Start(t, "--maxmemory", "1mb").Client(t)
	require.Equal(t, "1048576", client.ConfigGet(ctx, "maxmemory").Val()["maxmemory"])
	require.Empty(t, client.ConfigGet(ctx, "save").Val()["save"])
	require.NoError(t, client.Do(ctx, "debug", "sleep", "0").Err(), "DEBUG is enabled")
}

func TestServer_frozenKeepsConnectionsAndAnswersAfterThaw(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t, once, func(o *redis.Options) { o.ReadTimeout = -1 })
	require.NoError(t, client.Ping(ctx).Err())

	server.Freeze()
	done := background(set(client, "late"))
	requireSilent(t, done)
	server.Thaw()
	requireDone(t, done)
}

func TestServer_killedRefusesConnections(t *testing.T) {
	server := redistest.Start(t)
	server.Freeze()
	server.Kill()
	server.Kill()
	requireGone(t, server.PID())
	client := server.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 })
	require.ErrorContains(t, client.Ping(ctx).Err(), "connection refused")
}

func TestServer_restartsEmpty(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "2mb")
	client := server.Client(t)
	addr, first := server.Addr(), server.PID()
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())

	server.Restart() // while it runs
	second := server.PID()
	require.NotEqual(t, first, second)
	require.False(t, lives(first))
	require.Equal(t, addr, server.Addr())
	require.Zero(t, client.DBSize(ctx).Val())

	server.Kill()
	server.Restart()
	require.NotEqual(t, second, server.PID())
	require.Equal(t, "2097152", client.ConfigGet(ctx, "maxmemory").Val()["maxmemory"], "same arguments")
}

func TestServer_restartIsBackWhileRedisLoads(t *testing.T) {
	const slowly, atOnce = "10000", "0" // microseconds for each key
	server := redistest.Start(t, "--key-load-delay", slowly, "--loading-process-events-interval-bytes", "1024")
	client := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	require.NoError(t, client.Do(ctx, "debug", "populate", 1000).Err())
	require.NoError(t, client.Save(ctx).Err())
	server.Restart()
	require.ErrorContains(t, client.Get(ctx, "key:1").Err(), "LOADING")
	require.NoError(t, client.ConfigSet(ctx, "key-load-delay", atOnce).Err())
	require.Eventually(t, func() bool { return client.DBSize(ctx).Val() == 1000 }, soon, step)
}

func TestStartN_serversAreIndependent(t *testing.T) {
	servers := redistest.StartN(t, 5)
	require.Len(t, servers, 5)
	for i, server := range servers {
		require.NoError(t, server.Client(t).Set(ctx, "who", i, 0).Err())
	}
	servers[0].Kill()
	servers[1].Freeze()
	for i, server := range servers[2:] {
		got, err := server.Client(t).Get(ctx, "who").Int()
		require.NoError(t, err)
		require.Equal(t, i+2, got)
	}
}

func TestCalls_countsTheCallsOfOthersOnly(t *testing.T) {
	server := redistest.Start(t)
	require.Empty(t, server.Calls(t))
	require.Empty(t, server.Calls(t), "does not count its own INFO")

	client := server.Client(t)
	require.NoError(t, client.Set(ctx, "k", "1", 0).Err())
	require.NoError(t, client.Eval(ctx, "return redis.call('get', KEYS[1])", []string{"k"}).Err())
	require.Equal(t, map[string]int64{"hello": 1, "set": 1, "eval": 1, "get": 1}, server.Calls(t))
	require.NoError(t, client.Info(ctx).Err())
	require.Equal(t, int64(1), server.Calls(t)["info"])

	server.ResetStats(t)
	require.Empty(t, server.Calls(t))
	require.NoError(t, client.Get(ctx, "k").Err())
	require.Equal(t, map[string]int64{"get": 1}, server.Calls(t))

	server.Restart()
	require.Empty(t, server.Calls(t))
}
