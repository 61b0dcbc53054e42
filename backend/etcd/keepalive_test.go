package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// enableAuth turns authentication on. There is one user: root, with a password.
func enableAuth(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	_, err := client.UserAdd(ctx, "root", "secret")
	require.NoError(t, err)
	_, err = client.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = client.AuthEnable(ctx)
	require.NoError(t, err)
}

// login turns authentication on, and returns a client with a password, and how often the client has
// authenticated. Unless silent is 0, the client leaves servers that are silent for so long.
func login(t *testing.T, silent time.Duration, servers ...*etcdtest.Server) (*clientv3.Client, *atomic.Int64) {
	t.Helper()
	enableAuth(t, connect(t, servers...))
	logins := &atomic.Int64{}
	count := func(ctx context.Context, method string, q, a any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasSuffix(method, "/Authenticate") {
			logins.Add(1)
		}
		return call(ctx, method, q, a, cc, opts...)
	}
	config := clientv3.Config{
		Username: "root", Password: "secret", Logger: zap.NewNop(), DialTimeout: 20 * time.Second,
		DialKeepAliveTime: silent, DialKeepAliveTimeout: silent,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count)},
	}
	for _, s := range servers {
		config.Endpoints = append(config.Endpoints, s.Endpoints()...)
	}
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client, logins
}

// renewAll renews claims that are held, by one call.
func renewAll(ctx context.Context, t *testing.T, l *etcd.Locker, claims []driver.Claim) {
	t.Helper()
	driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(_ int, a driver.Answer, err error) {
		require.NoError(t, err)
		require.True(t, a.Held)
	})
}

// A client with a password does not authenticate for each renewal.
func TestRenew_authenticatesOnce(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "bcrypt-cost=4")
	client, logins := login(t, 0, server)
	l, claims := etcd.New(client), []driver.Claim{claim("a"), claim("b"), claim("c")}
	for _, c := range claims {
		awaitGrant(t, l, c)
	}
	before := logins.Load()
	for range 20 {
		renewAll(within(t, 20*time.Second), t, l, claims)
	}
	require.LessOrEqual(t, logins.Load()-before, int64(1))

	t.Run("again after its token has ended", func(t *testing.T) {
		// It ends all tokens of the user.
		_, err := client.UserChangePassword(within(t, 20*time.Second), "root", "secret")
		require.NoError(t, err)
		before := logins.Load()
		renewAll(within(t, 20*time.Second), t, l, claims)
		require.Positive(t, logins.Load()-before)
	})
	t.Run("again after a call has ended before its answer", func(t *testing.T) {
		server.Freeze(t)
		var two sync.WaitGroup // so that two streams are kept, of which the call takes one
		for _, c := range claims[:2] {
			two.Go(func() {
				held, err := l.Renew(within(t, 20*time.Second), c)
				assert.NoError(t, err)
				assert.True(t, held)
			})
		}
		time.Sleep(100 * time.Millisecond)
		server.Thaw()
		two.Wait()
		server.Freeze(t)
		_, err := l.Renew(within(t, 100*time.Millisecond), claims[0])
		var store *driver.StoreError
		require.ErrorAs(t, err, &store)
		require.Equal(t, driver.KindTimeout, store.Kind)
		server.Thaw()
		before := logins.Load()
		renewAll(within(t, 20*time.Second), t, l, claims[1:])
		require.Positive(t, logins.Load()-before)
	})
	t.Run("again after the server was killed", func(t *testing.T) {
		server.Kill()
		server.Restart(t)
		renewAll(within(t, 20*time.Second), t, l, claims)
		held, err := l.Release(within(t, 20*time.Second), claims[0], driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		held, err = l.Renew(within(t, 20*time.Second), claims[0])
		require.NoError(t, err)
		require.False(t, held)
	})
	t.Run("never after the client was closed", func(t *testing.T) {
		require.NoError(t, client.Close())
		_, err := l.Renew(within(t, 20*time.Second), claims[1])
		var store *driver.StoreError
		require.ErrorAs(t, err, &store)
		require.Equal(t, driver.KindClosed, store.Kind)
	})
}

// A lease outlives leaders that are frozen and killed, though its renewals go by streams that were
// kept. No other process gets its key, and that of a dead holder is free after its TTL.
func TestLong_newLeaders(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	servers := etcdtest.StartCluster(t, 3, "bcrypt-cost=4")
	client, _ := login(t, time.Second, servers...)
	l := etcd.New(client)
	var claims []driver.Claim
	for i := range 20 {
		claims = append(claims, claim(fmt.Sprint("key", i)))
		awaitGrant(t, l, claims[i])
	}
	for name, fail := range map[string]func(s *etcdtest.Server) (repair func()){
		"frozen": func(s *etcdtest.Server) func() { s.Freeze(t); return s.Thaw },
		"killed": func(s *etcdtest.Server) func() { s.Kill(); return func() { s.Restart(t) } },
	} {
		mortal := claim(name)
		mortal.TTL = 3 * time.Second
		due := time.Now().Add(mortal.TTL)
		awaitGrant(t, l, mortal)
		repair := fail(etcdtest.Leader(t, servers))
		for _, c := range claims {
			awaitRenewal(t, l, c)
			other, _ := l.TryAcquire(within(t, 10*time.Second), claim(c.Key))
			require.NotEqual(t, driver.Granted, other.State)
		}
		awaitGrant(t, l, claim(name))
		require.Greater(t, time.Now(), due)
		repair()
	}
}

// awaitRenewal renews a claim that is held. The servers may be electing a leader.
func awaitRenewal(t *testing.T, l *etcd.Locker, c driver.Claim) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		held, err := l.Renew(within(t, 5*time.Second), c)
		if err == nil {
			require.True(t, held, "the lease of %q is lost", c.Key)
			return
		}
		require.True(t, time.Now().Before(deadline), "the last answer is %v", err)
	}
}
