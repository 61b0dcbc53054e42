package etcd_test

import (
	"context"
	"io"
	"os"
	"sync"
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
			// The renewals of its own lease tell a waiting process that the revision went back.
			// It reconnects when the server has a leader: one without would end the watch.
			wire, woken := &line{}, make(chan error, 1)
			watching := &watching{Locker: etcd.New(connectBy(t, wire, server)), began: make(chan struct{})}
			other, err := guard.New(watching, guard.WithTTL(9*time.Second))
			require.NoError(t, err)
			another, err := other.Acquire(t.Context(), "another")
			require.NoError(t, err)
			go func() {
				woken <- other.Do(t.Context(), "old", func(context.Context) error { return nil }, guard.WithWait(2*time.Minute)) // less than half of the TTL of the holder
			}()
			<-watching.began

			wire.cut()
			server.Kill()
			server.Restore(t, data, options...)
			time.Sleep(3 * time.Second) // or fences are still ahead of clocks, see clock.next
			server.Restart(t)
			wire.repair()
			for _, lost := range []*guard.Lease{newer, another} {
				require.Eventually(t, func() bool { return lost.Context().Err() != nil }, time.Minute, 10*time.Millisecond)
				require.ErrorIs(t, context.Cause(lost.Context()), guard.ErrLost)
				require.ErrorIs(t, lost.Release(t.Context()), guard.ErrLost)
			}
			require.Greater(t, lastFence(t, l, 1), last)
			require.NoError(t, context.Cause(old.Context()))
			require.NoError(t, old.Release(t.Context()))
			require.NoError(t, <-woken)
			require.Equal(t, options == nil, len(l.Warnings(t.Context())) > 0)
			require.NoError(t, g.Close(t.Context()))
			require.NoError(t, other.Close(t.Context()))
		})
	}
}

// A watching Locker tells when its first watch has begun.
type watching struct {
	*etcd.Locker
	once  sync.Once
	began chan struct{}
}

func (w *watching) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	return w.Locker.Subscribe(key, id, func(in time.Duration) {
		w.once.Do(func() { close(w.began) })
		notify(in)
	})
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
