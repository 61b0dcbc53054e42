package single_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A tunnel is a connection without deadlines, as connections through SSH are.
type tunnel struct{ net.Conn }

var errNoDeadlines = errors.New("deadlines are not supported")

func (tunnel) SetDeadline(time.Time) error      { return errNoDeadlines }
func (tunnel) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (tunnel) SetWriteDeadline(time.Time) error { return errNoDeadlines }

// streaming provides credentials that may change.
type streaming struct{}

func (streaming) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return auth.NewBasicCredentials("app", "secret"), func() error { return nil }, nil
}

// A breaker is a Limiter that refuses commands while it is open.
type breaker struct{ open atomic.Bool }

func (b *breaker) Allow() error {
	if b.open.Load() {
		return errors.New("the breaker is open")
	}
	return nil
}
func (b *breaker) ReportResult(error) {}

// Leases are kept on each kind of client, also while the application's circuit breaker is open.
func TestNew_keepsLeasesOnEachKindOfClient(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond // long beside the stalls of a busy machine
	for name, c := range map[string]struct {
		change func(o *redis.Options)
		own    bool // the backend makes connections of its own
	}{
		"plain":                 {func(*redis.Options) {}, true},
		"a pool of one":         {func(o *redis.Options) { o.PoolSize = 1 }, true},
		"streaming credentials": {func(o *redis.Options) { o.StreamingCredentialsProvider = streaming{} }, false},
		"no read deadlines": {func(o *redis.Options) {
			o.ReadTimeout, o.WriteTimeout = -2, -2
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return tunnel{conn}, err
			}
		}, false},
		"streaming credentials, a pool of one": {func(o *redis.Options) {
			o.StreamingCredentialsProvider, o.PoolSize = streaming{}, 1
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "+@all", "~*", "&*").Err())
			limit := &breaker{}
			rdb := client(t, server.Addr(), c.change, func(o *redis.Options) { o.Limiter = limit })
			var clients atomic.Int64
			g, err := guard.New(single.New(rdb, single.WithClientSetup(func(*redis.Client) { clients.Add(1) })), guard.WithTTL(ttl))
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				require.NoError(t, g.Close(ctx))
			})
			lease, err := g.Acquire(t.Context(), "k")
			require.NoError(t, err)
			for range 30 { // as often as it takes for connections of our own
				require.NoError(t, g.Do(t.Context(), "other", nothing))
			}
			time.Sleep(ttl / 2) // a renewal
			limit.open.Store(true)
			time.Sleep(ttl + ttl/4) // until the lease would have ended
			require.NoError(t, lease.Context().Err(), "the application's breaker does not end a lease")
			limit.open.Store(false)
			require.NoError(t, lease.Release(t.Context()))
			require.Equal(t, c.own, clients.Load() > 0)
		})
	}
}
