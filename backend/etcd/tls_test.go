package etcd_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/certs"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

func connectTLS(t *testing.T, server *etcdtest.Server, config *tls.Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), TLS: config, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A client with a certificate is the user of that name, and needs no password.
func TestLocker_byTLS(t *testing.T) {
	t.Parallel()
	own, others := certs.Make(t), certs.Make(t)
	server := etcdtest.StartTLS(t, own)
	client := connectTLS(t, server, own.Config)
	enableAuth(t, client)
	l, c := etcd.New(client), claim("key")
	awaitGrant(t, l, c)
	for range 3 {
		renewAll(within(t, 20*time.Second), t, l, []driver.Claim{c})
	}
	held, err := l.Release(within(t, 20*time.Second), c, driver.After{})
	require.NoError(t, err)
	require.True(t, held)

	const closed = "broken pipe|server preface" // it can be seen before its reason
	for name, test := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"the system's authorities": {&tls.Config{MinVersion: tls.VersionTLS12}, "unknown authority"},
		"another authority":        {&tls.Config{RootCAs: others.Config.RootCAs, MinVersion: tls.VersionTLS12}, "unknown authority"},
		"no certificate":           {&tls.Config{RootCAs: own.Config.RootCAs, MinVersion: tls.VersionTLS12}, "certificate required|" + closed},
		"another certificate": {
			&tls.Config{RootCAs: own.Config.RootCAs, Certificates: others.Config.Certificates, MinVersion: tls.VersionTLS12},
			"unknown certificate authority|" + closed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := etcd.New(connectTLS(t, server, test.config))
			// The client may still be connecting, or a slow handshake have failed.
			require.EventuallyWithT(t, func(try *assert.CollectT) {
				_, err := l.TryAcquire(within(t, time.Second), c)
				var store *driver.StoreError
				require.ErrorAs(try, err, &store)
				require.Equal(try, driver.KindConnection, store.Kind)
				require.ErrorContains(try, err, "(clientv3.Config.TLS)")
				require.Regexp(try, test.want, err.Error())
			}, time.Minute, time.Millisecond)
		})
	}
}
