package redistest_test

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestTLS_isOnlyForClientsWithACertificate(t *testing.T) {
	t.Parallel()
	server := redistest.StartTLS(t)
	require.NoError(t, server.Client(t).Set(ctx, "k", "v", 0).Err())
	require.Equal(t, "v", server.Server.Client(t).Get(ctx, "k").Val(), "the plain port is that of tests")

	stranger := server.Client(t, func(o *redis.Options) {
		o.TLSConfig = &tls.Config{RootCAs: server.Config.RootCAs, MinVersion: tls.VersionTLS12}
		o.MaxRetries, o.DialerRetries = -1, 1
	})
	// The server says why, and closes the connection. The PING may find that it is closed first.
	require.Regexp(t, "certificate required|connection reset|broken pipe|EOF", stranger.Ping(ctx).Err())

	server.Restart()
	require.NoError(t, server.Client(t).Ping(ctx).Err(), "the port and the certificates stay the same")
}
