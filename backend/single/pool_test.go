package single_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
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
			hook, renewals := noteRenewals()
			g, err := guard.New(single.New(rdb, single.WithClientSetup(func(*redis.Client) { clients.Add(1) })), guard.WithTTL(renewed), hook)
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
			limit.open.Store(true)
			requireRenewed(t, lease, renewals)
			limit.open.Store(false)
			require.NoError(t, lease.Release(t.Context()))
			require.Equal(t, c.own, clients.Load() > 0)
		})
	}
}

// An outage empties the pool, and opens the breaker. An open breaker lets no command of the
// application's connect again.
func TestRenew_connectsWhileTheApplicationsBreakerIsOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limit := &breaker{}
	var down atomic.Bool
	var mu sync.Mutex
	var conns []net.Conn
	rdb := client(t, server.Addr(), func(o *redis.Options) {
		o.Limiter, o.DialerRetries = limit, 1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down.Load() {
				return nil, errors.New("refused")
			}
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
			return conn, err
		}
	})
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	renew(t, l, claimOf(1))
	down.Store(true)
	mu.Lock()
	for _, conn := range conns {
		_ = conn.Close()
	}
	mu.Unlock()
	require.Eventually(t, func() bool {
		_ = rdb.Ping(t.Context()).Err()
		return rdb.PoolStats().TotalConns == 0
	}, settled, time.Millisecond)
	limit.open.Store(true)
	down.Store(false)
	require.Eventually(t, func() bool {
		held, err := l.Renew(t.Context(), claimOf(1))
		return held && err == nil
	}, settled, 10*time.Millisecond)
	require.ErrorContains(t, rdb.Ping(t.Context()).Err(), "the breaker is open")
}

// noDeadlines has renewals use a connection of the client's pool.
func noDeadlines(o *redis.Options) { o.ReadTimeout = -2 }

func TestRenew_leavesTheOnlyConnectionOfAPoolToTheApplication(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, limit := range map[string]func(o *redis.Options){
		"PoolSize":       func(o *redis.Options) { o.PoolSize = 1 },
		"MaxActiveConns": func(o *redis.Options) { o.MaxActiveConns = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			rdb := client(t, server.Addr(), noDeadlines, limit, func(o *redis.Options) { o.PipelinePoolSize = -1 })
			l := single.New(rdb)
			require.NoError(t, take(t.Context(), l, claimOf(1)))
			renew(t, l, claimOf(1))
			require.NoError(t, rdb.Ping(t.Context()).Err())
		})
	}
}

func TestRenew_keepsNoConnectionForLongerThanConnMaxLifetime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	rdb := client(t, server.Addr(), noDeadlines, func(o *redis.Options) {
		o.ClientName, o.ConnMaxLifetime = "app", 200*time.Millisecond
	})
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	renew(t, l, claimOf(1))
	ids := func() (ids []string) {
		list, err := admin.ClientList(t.Context()).Result()
		require.NoError(t, err)
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name=app ") {
				ids = append(ids, strings.Fields(line)[0])
			}
		}
		return ids
	}
	first := ids()
	require.Eventually(t, func() bool {
		renew(t, l, claimOf(1))
		return !slices.ContainsFunc(ids(), func(id string) bool { return slices.Contains(first, id) })
	}, settled, 20*time.Millisecond)
}

// A client that allows the Locker no connections of its own needs one in its pool for renewals.
func TestWarnings_nameAPoolInWhichRenewalsHaveNoConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, c := range map[string]struct {
		change func(o *redis.Options)
		warns  bool
	}{
		"own connections, a pool of one":   {func(o *redis.Options) { o.PoolSize = 1 }, false},
		"the client's connections":         {noDeadlines, false},
		"the client's only connection":     {func(o *redis.Options) { noDeadlines(o); o.PoolSize = 1 }, true},
		"the client's only connection too": {func(o *redis.Options) { noDeadlines(o); o.MaxActiveConns = 1 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := client(t, server.Addr(), c.change)
			l := single.New(rdb)
			warnings := l.Warnings(t.Context())
			require.Equal(t, c.warns, len(warnings) > 0, "%v", warnings)
			if c.warns {
				require.ErrorContains(t, errors.Join(warnings...), "PoolSize of at least 2")
			}
			hook, renewals := noteRenewals()
			ttl := renewed
			if c.warns {
				ttl = time.Second
			}
			g, err := guard.New(l, guard.WithTTL(ttl), hook)
			require.NoError(t, err)
			lease, err := g.Acquire(t.Context(), name)
			require.NoError(t, err)
			list := "list " + name
			blocked := make(chan error, 1)
			go func() {
				// So is a pool with MaxActiveConns while the Locker still has the connection.
				err := redis.ErrPoolExhausted
				for errors.Is(err, redis.ErrPoolExhausted) {
					err = rdb.BLPop(t.Context(), 2*settled, list).Err()
				}
				blocked <- err
			}()
			if c.warns { // leases are lost
				require.Eventually(t, func() bool { return lease.Context().Err() != nil }, settled, time.Millisecond)
			} else {
				requireRenewed(t, lease, renewals)
			}
			require.NoError(t, server.Client(t).RPush(t.Context(), list, "end").Err())
			require.NoError(t, <-blocked)
			_ = lease.Release(t.Context()) // is ErrLost after a warning
			require.NoError(t, g.Close(t.Context()))
		})
	}
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "primary", SentinelAddrs: []string{"127.0.0.1:1"}, PoolSize: 1})
	t.Cleanup(func() { _ = sentinel.Close() })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Len(t, single.New(sentinel).Warnings(ended), 1)
}
