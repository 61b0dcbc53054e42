package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a go-redis client of the server, closed when the test ends. Its options are
// those of go-redis, retries and timeouts included, but for two that only add commands to each
// new connection: no maintenance notifications, no client identity. Each configure may change
// the options, the address too.
func (s *Server) Client(t testing.TB, configure ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, s.Addr(), configure)
}

func newClient(t testing.TB, addr string, configure []func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{
		Addr:                     addr,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, change := range configure {
		change(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}
