package etcd_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a client of the servers.
func connect(t testing.TB, servers ...*etcdtest.Server) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, s := range servers {
		endpoints = append(endpoints, s.Endpoints()...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// late is how much later than its TTL a key may be free: up to a second for the whole seconds, half
// a second until the server looks, and some more on a busy machine.
const late = 2500 * time.Millisecond

// suite describes a backend on the servers. Each check has a prefix of its own.
func suite(t testing.TB, servers ...*etcdtest.Server) guardtest.Backend {
	here, there := connect(t, servers...), connect(t, servers...)
	var prefixes sync.Map // by the name of the check
	prefixOf := func(t testing.TB) etcd.Option {
		prefix, _ := prefixes.LoadOrStore(t.Name(), rand.Text()+"/")
		return etcd.WithPrefix(prefix.(string))
	}
	return guardtest.Backend{
		New:   func(t testing.TB) guard.Locker { return etcd.New(here, prefixOf(t)) },
		Again: func(t testing.TB, _ guard.Locker) guard.Locker { return etcd.New(there, prefixOf(t)) },
		Flush: func(t testing.TB) {
			prefix, _ := prefixes.Load(t.Name())
			_, err := here.Delete(context.Background(), prefix.(string), clientv3.WithPrefix())
			require.NoError(t, err)
		},
		Parallel: true, Ledger: true, Inspects: true, Notifies: true,
		Shares: []int{2, 3, driver.Unlimited}, MinTTL: etcdtest.MinTTL, Late: late,
	}
}

func TestLocker(t *testing.T) {
	server := etcdtest.Start(t)
	s := suite(t, server)
	s.Freeze = func(t testing.TB) func() {
		server.Freeze(t)
		return server.Thaw
	}
	guardtest.Run(t, s)
}
