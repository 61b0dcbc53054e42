package single_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A witness is a hook that notes what a client sends.
type witness struct {
	mu   sync.Mutex
	sent []string
}

func (w *witness) note(cmds ...redis.Cmder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cmd := range cmds {
		w.sent = append(w.sent, cmd.Name())
	}
}

// count returns how many of these commands were sent.
func (w *witness) count(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		if s == name {
			n++
		}
	}
	return n
}

func (w *witness) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (w *witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.note(cmd)
		return next(ctx, cmd)
	}
}

func (w *witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.note(cmds...)
		return next(ctx, cmds)
	}
}

// busyPool takes all connections that the client may have, until the test ends.
func busyPool(t *testing.T, rdb *redis.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	size := rdb.Options().PoolSize
	for range size {
		all.Go(func() {
			conn := rdb.Conn()
			defer func() { _ = conn.Close() }()
			if conn.Ping(ctx).Err() == nil {
				<-ctx.Done()
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	require.Eventually(t, func() bool {
		s := rdb.PoolStats()
		return int(s.TotalConns) == size && s.IdleConns == 0
	}, settled, time.Millisecond)
}

func withPools(size, pipelines int) func(*redis.Options) {
	return func(o *redis.Options) { o.PoolSize, o.PipelinePoolSize = size, pipelines }
}

func TestOwn_leasesAreRenewedWhileTheApplicationHasAllConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, pipelines := range map[string]int{"pipelines have their own": 0, "pipelines have none": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := client(t, server.Addr(), withPools(2, pipelines))
			hook, renewals := noteRenewals()
			g := newGuard(t, rdb, guard.WithTTL(renewed), hook)
			lease, err := g.Acquire(t.Context(), name)
			require.NoError(t, err)
			busyPool(t, rdb)
			requireRenewed(t, lease, renewals)
			require.NoError(t, lease.Release(t.Context()))
			require.NoError(t, g.Do(t.Context(), name, nothing), "occasional calls need none of them either")
		})
	}
}

func TestOwn_renewalsGoByTheUsersClientWhereTheServerHasNoConnectionLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := client(t, server.Addr(), withPools(2, -1))
	admin := server.Client(t)
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	n, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", fmt.Sprint(strings.Count(n, "\n"))).Err())
	for range 100 {
		renew(t, l, claimOf(1))
	}
	for i := range 100 {
		require.NoError(t, take(t.Context(), l, claimOf(2+i)))
	}
}

// killNewest ends the connection that was made last, but for that of admin.
func killNewest(t *testing.T, admin *redis.Client) {
	t.Helper()
	self, err := admin.ClientID(t.Context()).Result()
	require.NoError(t, err)
	list, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	var newest int64
	for line := range strings.Lines(list) {
		var id int64
		_, err := fmt.Sscanf(line, "id=%d ", &id)
		require.NoError(t, err)
		if id != self {
			newest = max(newest, id)
		}
	}
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "ID", fmt.Sprint(newest)).Err())
}

func TestOwn_renewalsMakeANewConnectionWhereTheirsHasBroken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := client(t, server.Addr(), withPools(1, -1))
	admin := server.Client(t)
	require.NoError(t, admin.Ping(t.Context()).Err())
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	renew(t, l, claimOf(1))
	killNewest(t, admin)
	busyPool(t, rdb)
	time.Sleep(time.Second) // for longer than a connection is believed to be alive
	// it waits for a connection of the client until its own is there
	require.Eventually(t, func() bool {
		held, err := await(t.Context(), l, driver.OpRenew, claimOf(1))
		return held && err == nil
	}, settled, time.Millisecond)
}

func TestOwn_aCallerThatLosesItsConnectionUsesTheUsersClient(t *testing.T) {
	t.Parallel()
	l := alone(t)
	// those that are there may stay
	require.NoError(t, l.admin.ConfigSet(t.Context(), "maxclients", "1").Err())
	killNewest(t, l.admin)
	if err := take(t.Context(), l, claimOf(1)); err != nil { // it may have been out
		require.ErrorIs(t, err, guard.ErrStore)
	}
	for range 50 {
		require.NoError(t, take(t.Context(), l, claimOf(1)))
	}
}

// renew renews one claim, as a Guard does.
func renew(t *testing.T, l *single.Locker, c driver.Claim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	held, err := await(ctx, l, driver.OpRenew, c)
	require.NoError(t, err)
	require.True(t, held)
}

// await starts a call for the claim, and returns whether it holds its key.
func await(ctx context.Context, l driver.Locker, op driver.Op, c driver.Claim) (held bool, err error) {
	driver.Await(ctx, l, op, []driver.Claim{c}, driver.After{}, func(_ int, a driver.Answer, e error) { held, err = a.Held, e })
	return held, err
}

func TestOwn_renewalsOutliveTheirConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	l := single.New(client(t, proxy.Addr()))
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	for range 3 {
		require.Eventually(t, func() bool {
			made := proxy.Conns()
			renew(t, l, claimOf(1))
			return made == proxy.Conns()
		}, settled, time.Millisecond, "it stays")
		proxy.Cut()
		time.Sleep(time.Second) // for longer than a connection is believed to be alive
		renew(t, l, claimOf(1))
	}
}

func TestOwn_aRenewalOfAFrozenServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := single.New(client(t, server.Addr(), func(o *redis.Options) { o.ReadTimeout = 2 * settled }))
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	renew(t, l, claimOf(1))
	server.Freeze()
	for name, cancelled := range map[string]bool{"cancelled": true, "by a deadline": false} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if cancelled {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
		start := time.Now()
		var reported atomic.Int64
		driver.Await(ctx, l, driver.OpRenew, []driver.Claim{claimOf(1), claimOf(2)}, driver.After{}, func(_ int, _ driver.Answer, err error) {
			reported.Add(1)
			require.ErrorIs(t, err, guard.ErrStore, name)
		})
		cancel()
		require.Less(t, time.Since(start), settled, name)
		require.EqualValues(t, 2, reported.Load())
	}
	server.Thaw()
	require.Eventually(t, func() bool {
		held, _ := await(t.Context(), l, driver.OpRenew, claimOf(1))
		return held
	}, settled, 10*time.Millisecond)
}

func TestClose_endsTheLockersConnectionsAndNotTheClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := &lonely{server: server, admin: server.Client(t), rdb: client(t, server.Addr(), withPools(10, -1))}
	l.Locker = single.New(l.rdb)
	require.NoError(t, l.rdb.Ping(t.Context()).Err())
	before := l.connections(t)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	require.Eventually(t, func() bool {
		for _, err := range all(200, func(i int) error { return take(t.Context(), l, claimOf(2+i)) }) {
			require.NoError(t, err)
		}
		renew(t, l.Locker, claimOf(1))
		return l.connections(t) > before+1
	}, settled, time.Millisecond)
	for range 2 {
		require.NoError(t, l.Close())
	}
	own := func() int { return l.connections(t) - int(l.rdb.PoolStats().TotalConns) }
	require.Eventually(t, func() bool { return own() == 1 }, settled, 10*time.Millisecond, "that of the test")
	closed := func(err error) {
		var failed *guard.StoreError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, driver.KindClosed, failed.Kind)
		require.ErrorContains(t, err, "the Locker was closed")
	}
	closed(take(t.Context(), l, claimOf(1)))
	_, err := l.Release(t.Context(), claimOf(1), driver.After{})
	closed(err)
	_, err = l.Renew(t.Context(), claimOf(1))
	closed(err)
	for _, op := range []driver.Op{driver.OpAcquire, driver.OpRenew, driver.OpRelease} {
		driver.Await(t.Context(), l, op, []driver.Claim{claimOf(1), claimOf(2)}, driver.After{}, func(_ int, _ driver.Answer, err error) { closed(err) })
	}
	require.NoError(t, l.rdb.Ping(t.Context()).Err(), "the client is the application's")
	require.Eventually(t, func() bool { return own() == 1 }, settled, 10*time.Millisecond)
}

// What is under way ends as usual, and its connection after it.
func TestClose_waitsForNothingAndCutsNothingOff(t *testing.T) {
	t.Parallel()
	l := alone(t)
	l.proxy.HoldReplies()
	before, taken := l.server.Calls(t)["evalsha"], make(chan error, 1)
	go func() { taken <- take(t.Context(), l, claimOf(1)) }()
	require.Eventually(t, func() bool { return l.server.Calls(t)["evalsha"] > before }, settled, time.Millisecond)
	require.NoError(t, l.Close())
	l.proxy.ReleaseReplies()
	require.NoError(t, <-taken)
	own := func() int { return l.connections(t) - int(l.rdb.PoolStats().TotalConns) }
	require.Eventually(t, func() bool { return own() == 1 }, settled, 10*time.Millisecond)
}

// A lane goes on connecting for longer than its caller waits, but not after Close.
func TestClose_endsConnecting(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := &lonely{server: server, admin: server.Client(t), proxy: redistest.StartProxy(t, server.Addr())}
	l.rdb = client(t, l.proxy.Addr())
	l.Locker = single.New(l.rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	own := func() int { return l.connections(t) - int(l.rdb.PoolStats().TotalConns) }
	require.Equal(t, 1, own(), "that of the test")
	l.proxy.HoldReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := await(ctx, l.Locker, driver.OpRenew, claimOf(1))
	require.ErrorIs(t, err, guard.ErrStore)
	goesOn := func() bool { // the pool replaces its connection meanwhile, which changes both counts
		for range 10 {
			if own() != 2 {
				return false
			}
			time.Sleep(10 * time.Millisecond)
		}
		return true
	}
	require.Eventually(t, goesOn, settled, 10*time.Millisecond, "the lane goes on connecting")
	require.NoError(t, l.Close())
	require.Eventually(t, func() bool { return own() == 1 }, settled, 10*time.Millisecond)
}

// A Guard does not close its Locker: another one may use it.
func TestClose_ofAGuardLeavesItsLockerToOthers(t *testing.T) {
	t.Parallel()
	l := single.New(redistest.Start(t).Client(t))
	first, err := guard.New(l)
	require.NoError(t, err)
	second, err := guard.New(l)
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, second.Do(t.Context(), "k", nothing))
	require.NoError(t, second.Close(t.Context()))
	require.NoError(t, l.Close())
}

func TestWithClientSetup_hooksSeeEveryCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var w witness
	// go-redis retries below the hooks, as after three seconds without an answer
	rdb := client(t, server.Addr(), func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, settled })
	rdb.AddHook(&w)
	made := 0
	l := single.New(rdb, single.WithClientSetup(func(own *redis.Client) {
		made++
		require.Equal(t, server.Addr(), own.Options().Addr)
		own.AddHook(&w)
	}))
	require.Equal(t, 3, made)
	server.ResetStats(t)
	for range 200 {
		require.NoError(t, take(t.Context(), l, claimOf(1)))
		renew(t, l, claimOf(1))
		_, err := l.Release(t.Context(), claimOf(1), driver.After{})
		require.NoError(t, err)
	}
	for _, err := range all(500, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
		require.NoError(t, err)
	}
	calls := server.Calls(t)
	require.EqualValues(t, calls["evalsha"], w.count("evalsha"))
	require.Positive(t, w.count("ping"), "on a connection of its own")
	require.Equal(t, 3, made, "once for each client")
}

func TestWithClientSetup_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	rdb := client(t, "127.0.0.1:1")
	for says, f := range map[string]func(*redis.Client){
		"WithClientSetup(nil): must not be nil":  nil,
		"WithClientSetup: a panic: no such hook": func(*redis.Client) { panic("no such hook") },
	} {
		_, err := guard.New(single.New(rdb, single.WithClientSetup(f)))
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "WithClientSetup", refused.Setting)
		require.ErrorContains(t, err, says)
	}
}

func TestOwn_hasWhatTheUsersClientWasMadeWith(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	password := rand.Text()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">"+password, "~*", "&*", "+@all").Err())
	rdb := client(t, server.Addr(), func(o *redis.Options) {
		o.Username, o.Password, o.DB, o.ClientName = "app", password, 3, "shop"
	})
	l := single.New(rdb)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	require.Eventually(t, func() bool { // by the user's connection, until its own is there
		renew(t, l, claimOf(1))
		list, err := admin.ClientList(t.Context()).Result()
		require.NoError(t, err)
		own := regexp.MustCompile(`(?m)^.* name=shop .* db=3 .* user=app .*$`).FindAllString(list, -1)
		return len(own) == 2
	}, settled, time.Millisecond, "one of the user's, and one for renewals")
}

// An overlap is a hook that notes how many commands were out at the same time.
type overlap struct {
	witness
	out, most atomic.Int64
}

func (o *overlap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		if n := o.out.Add(1); n > o.most.Load() {
			o.most.Store(n)
		}
		defer o.out.Add(-1)
		return next(ctx, cmd)
	}
}

func TestTogether_sendsASecondBatchWhileTheFirstIsOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	rdb := client(t, proxy.Addr())
	var seen overlap
	rdb.AddHook(&seen)
	l := single.New(rdb, single.WithClientSetup(func(own *redis.Client) { own.AddHook(&seen) }))
	require.NoError(t, take(t.Context(), l, claimOf(-1)))
	proxy.Delay(10 * time.Millisecond) // less than what makes a batch late
	for range 5 {
		for _, err := range all(512, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
			require.NoError(t, err)
		}
	}
	require.GreaterOrEqual(t, seen.most.Load(), int64(2))
}
