package etcd_test

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// The data of a snapshot are restored, with the revision of the snapshot and with a larger one. The
// leases of the snapshot are back. A holder of a newer lease learns that it is lost. Fences grow. A
// waiter is notified of a release, though its watch begins after a revision that is yet to come.
func TestLong_aSnapshotIsRestored(t *testing.T) {
	leftout.IfShort(t)
	leftout.If(t, os.Getenv("ONERUN_ETCD") != "", "etcdutl is of another version than the server")
	for name, options := range map[string][]string{
		"asItIs":             nil,
		"withALaterRevision": {"--bump-revision=1000000000", "--mark-compacted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := etcdtest.Start(t)
			client := connect(t, server)
			l := etcd.New(client)
			g, err := guard.New(l, guard.WithTTL(9*time.Second))
			require.NoError(t, err)
			old, err := g.Acquire(t.Context(), "old", guard.WithTTL(long))
			require.NoError(t, err)
			data := snapshot(t, client)
			newer, err := g.Acquire(t.Context(), "newer")
			require.NoError(t, err)
			last := lastFence(t, l, 20)
			// Its other claims tell a waiting process that the revision went back. It reconnects
			// when the server has a leader: one without would end the watch.
			wire, notified := &line{}, make(chan struct{}, 100)
			waiting := etcd.New(connectBy(t, wire, server))
			awaitGrant(t, waiting, claim("before"))
			defer waiting.Subscribe("old", "", func(time.Duration) { notified <- struct{}{} })()
			<-notified

			wire.cut()
			server.Kill()
			server.Restore(t, data, options...)
			time.Sleep(3 * time.Second) // or fences are still ahead of clocks, see clock.next
			server.Restart(t)
			wire.repair()
			require.Eventually(t, func() bool { return newer.Context().Err() != nil }, time.Minute, 10*time.Millisecond)
			require.ErrorIs(t, context.Cause(newer.Context()), guard.ErrLost)
			require.ErrorIs(t, newer.Release(t.Context()), guard.ErrLost)
			require.Greater(t, lastFence(t, l, 1), last)
			require.NoError(t, context.Cause(old.Context()))
			awaitGrant(t, waiting, claim("after"))
			require.NoError(t, old.Release(t.Context()))
			select {
			case <-notified:
			case <-time.After(time.Minute):
				require.Fail(t, "the waiter was not notified")
			}
			require.Equal(t, options == nil, len(l.Warnings(t.Context())) > 0)
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

func snapshot(t testing.TB, client *clientv3.Client) []byte {
	t.Helper()
	r, err := client.Snapshot(within(t, 20*time.Second))
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return data
}

// lastFence acquires and releases a key n times, and returns the last fence.
func lastFence(t testing.TB, l *etcd.Locker, n int) (fence uint64) {
	t.Helper()
	for range n {
		c := claim("key")
		next := awaitGrant(t, l, c).Fence
		require.Greater(t, next, fence)
		fence = next
		held, err := l.Release(within(t, 20*time.Second), c, driver.After{})
		require.NoError(t, err)
		require.True(t, held)
	}
	return fence
}
