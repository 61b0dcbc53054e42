package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

// A line has the connections of a client, which can be cut.
type line struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

var errDown = errors.New("the line is down")

func (l *line) dial(ctx context.Context, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// cut ends all connections, and lets none be made until repair.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

func (l *line) repair() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// connectBy returns a client of the server on a line.
func connectBy(t testing.TB, l *line, s *etcdtest.Server) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: s.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(l.dial)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// The key is released while the waiter is disconnected, and the servers forget that by a
// compaction: at the release itself, or later. The waiter is notified all the same.
func TestSubscribe_goesOnAfterACompaction(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := connect(t, server)
	for _, writes := range []int{0, 3} {
		l, wire, c := etcd.New(client), &line{}, claim(fmt.Sprint("key", writes))
		awaitGrant(t, l, c)
		notified := make(chan struct{}, 100)
		defer etcd.New(connectBy(t, wire, server)).Subscribe(c.Key, "", func(time.Duration) { notified <- struct{}{} })()
		<-notified
		wire.cut()
		released, err := l.Release(within(t, 20*time.Second), c, driver.After{})
		require.NoError(t, err)
		require.True(t, released)
		for range writes {
			_, err = client.Put(within(t, 20*time.Second), "another", "key")
			require.NoError(t, err)
		}
		now, err := client.Get(within(t, 20*time.Second), "another")
		require.NoError(t, err)
		_, err = client.Compact(within(t, 20*time.Second), now.Header.Revision, clientv3.WithCompactPhysical())
		require.NoError(t, err)
		require.Empty(t, notified)
		wire.repair()
		select {
		case <-notified:
		case <-time.After(20 * time.Second):
			require.Fail(t, "the waiter was not notified", "%d writes after the release", writes)
		}
	}
}
