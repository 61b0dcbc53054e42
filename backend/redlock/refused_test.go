package redlock_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestNew_refusesNodesThatCannotWork(t *testing.T) {
	at := func(addr string) guard.Locker {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		return single.New(rdb)
	}
	one := memory.New()
	for name, c := range map[string]struct {
		nodes   []guard.Locker
		setting string
		says    string
	}{
		"none":                   {nil, "nodes", "must be three at least"},
		"two":                    {memories(2), "nodes", "must be three at least"},
		"nil":                    {append(memories(4), nil), "nodes", "(number 5): must not be nil"},
		"a nil pointer":          {append(memories(2), (*memory.Locker)(nil)), "nodes", "(number 3): must not be nil"},
		"a Locker twice":         {[]guard.Locker{one, memory.New(), one}, "nodes", "(numbers 1 and 3): must not be the same Locker"},
		"a server twice":         {[]guard.Locker{at("a:1"), at("b:1"), at("c:1"), at("b:1")}, "nodes", "(numbers 2 and 4): must not be on the same server, b:1"},
		"a server wrapped":       {[]guard.Locker{at("a:1"), at("b:1"), driver.Wrapper{Locker: at("a:1")}}, "nodes", "(numbers 1 and 3): must not be on the same server, a:1"},
		"a node that is refused": {append(memories(2), single.New(nil)), "client", "redlock: node 3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := guard.New(redlock.New(c.nodes))
			var refused *guard.SettingError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.setting, refused.Setting)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := guard.New(redlock.New([]guard.Locker{at("a:1"), at("b:1"), at("c:1")}))
	require.NoError(t, err)
}

func TestNew_aKeyIsOneIfEveryNodeCanHoldIt(t *testing.T) {
	picky := picky{memory.New()}
	g := newGuard(t, redlock.New(append(memories(2), driver.Wrapper{Locker: picky})))
	var refused *guard.KeyError
	require.ErrorAs(t, g.Do(t.Context(), "bad", nothing), &refused)
	require.ErrorAs(t, g.Do(t.Context(), "", nothing), &refused)
	require.NoError(t, g.Do(t.Context(), "good", nothing))
}

// A picky Locker has rules of its own for keys.
type picky struct{ guard.Locker }

func (picky) Describe() driver.Description {
	return driver.Description{CheckKey: func(key string) error {
		if key == "bad" {
			return &guard.KeyError{Key: key, Reason: "must be good"}
		}
		return nil
	}}
}

func TestAcquire_refusesOneServerUnderTwoAddresses(t *testing.T) {
	t.Parallel()
	servers := redistest.StartN(t, 5)
	proxy := redistest.StartProxy(t, servers[1].Addr()).Addr()
	_, port, err := net.SplitHostPort(servers[1].Addr())
	require.NoError(t, err)
	for name, addr := range map[string]string{"a proxy": proxy, "a name": net.JoinHostPort("localhost", port)} {
		t.Run(name, func(t *testing.T) {
			var nodes []guard.Locker
			for _, s := range servers {
				nodes = append(nodes, single.New(s.Client(t)))
			}
			nodes[3] = single.New(servers[3].Client(t, func(o *redis.Options) { o.Addr = addr }))
			g := newGuard(t, redlock.New(nodes))
			ran := false
			do := func() error {
				ran = false
				return g.Do(t.Context(), "k", func(context.Context) error { ran = true; return nil }, guard.WithWait(time.Minute))
			}
			// A server that takes its time to state its identity does not hold up the first calls.
			var err error
			require.Eventually(t, func() bool { err = do(); return err != nil }, time.Minute, 10*time.Millisecond)
			for range 2 {
				var refused *guard.StoreError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, driver.KindSettings, refused.Kind)
				require.True(t, refused.Kind.Permanent())
				require.ErrorContains(t, err, "nodes 2 and 4 are one server ("+servers[1].Addr()+" and "+addr+")")
				require.False(t, ran)
				err = do()
			}
			for _, s := range servers {
				require.Equal(t, driver.Granted, look(t, single.New(s.Client(t)), "k").state)
			}
		})
	}
}

func TestAcquire_namesTheNodesThatCannotBeReachedAtFirst(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	var nodes []guard.Locker
	for _, s := range q.servers {
		nodes = append(nodes, single.New(s.Client(t)))
	}
	for _, s := range q.servers[:3] {
		s.Kill()
	}
	g := newGuard(t, redlock.New(nodes), guard.WithTTL(2*time.Second))
	var err error
	var failed *guard.StoreError
	// The last attempt of a call may have no time left for an answer.
	require.Eventually(t, func() bool {
		err = g.Do(t.Context(), "k", nothing)
		require.ErrorAs(t, err, &failed)
		return failed.Kind != driver.KindTimeout
	}, 20*time.Second, time.Millisecond)
	requireNoQuorum(t, err, driver.OpAcquire)
	for _, s := range q.servers[:3] {
		require.ErrorContains(t, err, s.Addr())
	}
	for _, s := range q.servers[3:] {
		require.NotContains(t, err.Error(), s.Addr())
	}
	q.servers[0].Restart()
	require.NoError(t, g.Do(t.Context(), "k", nothing, guard.WithWait(5*time.Second)), "with three it works")
	q.servers[1].Restart()
	q.servers[2].Restart()
	require.NoError(t, g.Do(t.Context(), "k", nothing))
}

func TestNew_aGuardOverAQuorumIsNotFair(t *testing.T) {
	quorum := redlock.New(memories(3))
	var refused *guard.SettingError
	_, err := guard.New(quorum, guard.WithFair())
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "WithFair", refused.Setting)
	require.ErrorContains(t, err, "redlock.Locker")
	g, err := guard.New(quorum)
	require.NoError(t, err)
	refused = nil
	require.ErrorAs(t, g.Do(t.Context(), "k", func(context.Context) error { return nil }, guard.WithFair()), &refused)
	require.NoError(t, g.Close(t.Context()))
}
