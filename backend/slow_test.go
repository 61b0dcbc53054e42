package backend_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A slowCell is one situation of a server that runs each command and delays each reply.
type slowCell struct {
	nodes            int
	ttl, delay, read time.Duration // read is the client's ReadTimeout
	pool             int
}

func (c slowCell) String() string {
	return fmt.Sprintf("%d nodes, %v of TTL %v, ReadTimeout %v, pool %d", c.nodes, c.delay, c.ttl, c.read, c.pool)
}

// A server that is slow costs no lease, no marker and no error, whatever the client's time-outs
// are.
func TestSlow_aServerCostsNothingWhateverTheClientsTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []slowCell{
		{1, 9 * time.Second, 400 * time.Millisecond, 150 * time.Millisecond, 10},
		{3, 9 * time.Second, 400 * time.Millisecond, 150 * time.Millisecond, 10},
	} {
		t.Run(c.String(), func(t *testing.T) { t.Parallel(); c.test(t) })
	}
}

func TestWeekly_aServerSlowerThanTheClientsDefaultTimeoutCostsNothing(t *testing.T) {
	redistest.Long(t)
	for _, c := range []slowCell{
		{1, 14 * time.Second, 3200 * time.Millisecond, -1, 10},
		{1, 14 * time.Second, 3200 * time.Millisecond, 3 * time.Second, 2},
		{1, 14 * time.Second, 3200 * time.Millisecond, 3 * time.Second, 10},
		{1, 30 * time.Second, 5200 * time.Millisecond, 3 * time.Second, 10},
		{3, 30 * time.Second, 3200 * time.Millisecond, 3 * time.Second, 10},
	} {
		t.Run(c.String(), func(t *testing.T) { t.Parallel(); c.test(t) })
	}
}

func (c slowCell) test(t *testing.T) {
	var proxies []*redistest.Proxy
	var nodes, direct []guard.Locker
	for _, server := range redistest.StartN(t, c.nodes) {
		p := redistest.StartProxy(t, server.Addr())
		proxies = append(proxies, p)
		nodes = append(nodes, single.New(p.Client(t, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = c.read, c.pool })))
		direct = append(direct, single.New(server.Client(t)))
	}
	delay := func(d time.Duration) {
		for _, p := range proxies {
			p.Delay(d)
		}
	}
	locker, other := nodes[0], direct[0]
	if c.nodes > 1 {
		locker, other = redlock.New(nodes), redlock.New(direct)
	}
	var delayed atomic.Bool
	renewed := make(chan struct{}, 1000)
	g, err := guard.New(locker, guard.WithTTL(c.ttl), guard.WithHook(guard.Hook{Renew: func(_ context.Context, e guard.RenewEvent) {
		if e.Err == nil && delayed.Load() {
			renewed <- struct{}{}
		}
	}}))
	require.NoError(t, err)
	rest, err := guard.New(other)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rest.Close(context.Background())) })
	require.NoError(t, g.Do(t.Context(), "warm", nothing)) // the client has a connection

	work := func(ctx context.Context) error {
		delay(c.delay)
		delayed.Store(true)
		for range 2 { // the first one may have been under way
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-renewed:
			}
		}
		return nil
	}
	require.NoError(t, g.Do(t.Context(), "k", work, guard.WithOnce(time.Hour)))
	require.ErrorIs(t, rest.Do(t.Context(), "k", nothing, guard.WithOnce(time.Hour)), guard.ErrDone)
	require.NoError(t, g.Do(t.Context(), "cold", nothing, guard.WithOnce(time.Hour)), "the store was slow before")
	require.ErrorIs(t, rest.Do(t.Context(), "cold", nothing, guard.WithOnce(time.Hour)), guard.ErrDone)
	delay(0)
	require.NoError(t, g.Close(t.Context()))
}

// The round trips of a new connection take longer than the claim may: they are made up for.
func TestWeekly_aConnectionThatIsSlowToMakeIsMadeAllTheSame(t *testing.T) {
	redistest.Long(t)
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr())
	g, err := guard.New(single.New(p.Client(t)), guard.WithTTL(4*time.Second))
	require.NoError(t, err)
	p.Delay(1500 * time.Millisecond) // at least three round trips, and 3.94 s for a claim
	require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(20*time.Second)))
	p.Delay(0)
	require.NoError(t, g.Close(t.Context()))
}
