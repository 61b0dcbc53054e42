package redistest_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestProxy_darkThenRestored(t *testing.T) {
	proxy, client, direct := proxied(t)
	proxy.GoDark()
	old := background(set(client, "old"))
	fresh := background(set(proxy.Client(t), "new")) // connects in the dark
	require.Eventually(t, func() bool { return proxy.Conns() == 2 }, soon, step, "new connections are accepted")
	requireSilent(t, old)
	requireSilent(t, fresh)
	require.Zero(t, direct.Exists(ctx, "old", "new").Val(), "nothing arrived")

	proxy.Restore()
	requireDone(t, old)
	requireDone(t, fresh)
	require.Equal(t, int64(2), direct.Exists(ctx, "old", "new").Val())
}

func TestProxy_darkRequestsArriveAfterTheClientHasLeft(t *testing.T) {
	for name, dark := range map[string]bool{"both ways": true, "requests": false} {
		t.Run(name, func(t *testing.T) {
			proxy, _, direct := proxied(t)
			conn, err := net.Dial("tcp", proxy.Addr())
			require.NoError(t, err)
			if dark {
				proxy.GoDark()
			} else {
				proxy.DarkRequests()
			}
			_, err = io.WriteString(conn, "SET late 1\r\n")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			require.Zero(t, direct.Exists(ctx, "late").Val())
			proxy.Restore()
			require.Eventually(t, func() bool { return direct.Exists(ctx, "late").Val() == 1 }, soon, step)
		})
	}
}

func TestProxy_darkRepliesLetRequestsBeExecuted(t *testing.T) {
	proxy, client, direct := proxied(t)
	proxy.DarkReplies()
	done := background(set(client, "k"))
	require.Eventually(t, func() bool { return direct.Exists(ctx, "k").Val() == 1 }, soon, step)
	requireSilent(t, done)
	proxy.Restore()
	requireDone(t, done)
}

func TestProxy_darkHidesThatTheServerDied(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	client := proxy.Client(t, once)
	require.NoError(t, client.Ping(ctx).Err())
	proxy.GoDark()
	done := background(set(client, "k"))
	server.Kill()

	raw, err := net.Dial("tcp", proxy.Addr())
	require.NoError(t, err)
	defer raw.Close()
	requireSilent(t, background(func() error {
		_, err := raw.Read(make([]byte, 1))
		return err
	}))
	requireSilent(t, done)

	proxy.Restore()
	require.Error(t, <-done)
}

func TestProxy_cleanupEndsItInTheDark(t *testing.T) {
	redistest.Require(t)
	var done <-chan error
	t.Run("inner", func(t *testing.T) {
		proxy, client, _ := proxied(t)
		proxy.GoDark()
		done = background(set(client, "k"))
		requireSilent(t, done)
	})
	require.Error(t, <-done) // that no goroutine is left, goleak sees in the end
}

func TestProxy_darkRequestsOutliveTheReplyThatFindsNobody(t *testing.T) {
	proxy, _, direct := proxied(t)
	conn, err := net.Dial("tcp", proxy.Addr())
	require.NoError(t, err)
	proxy.HoldReplies()
	_, err = io.WriteString(conn, "SET first 1\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return direct.Exists(ctx, "first").Val() == 1 }, soon, step)
	proxy.DarkRequests()
	_, err = io.WriteString(conn, "SET late 1\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())

	proxy.ReleaseReplies()
	require.Never(t, func() bool { return direct.Exists(ctx, "late").Val() == 1 }, 30*time.Millisecond, step)
	proxy.Restore()
	require.Eventually(t, func() bool { return direct.Exists(ctx, "late").Val() == 1 }, soon, step)
}
