package single_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestNew_refusesAClientThatCannotWork(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, c := range map[string]struct {
		client redis.UniversalClient
		says   string
	}{
		"nil":         {nil, "client: must not be nil"},
		"nil pointer": {(*redis.Client)(nil), "client: must not be nil"},
		"ring":        {ring, "client(*redis.Ring): a Ring moves the keys"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := guard.New(single.New(c.client))
			var refused *guard.SettingError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "client", refused.Setting)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// refusal runs work on a client that cannot do it, and returns the error.
func refusal(t *testing.T, rdb redis.UniversalClient, opts ...guard.Option) *guard.StoreError {
	t.Helper()
	g, err := guard.New(single.New(rdb), opts...)
	require.NoError(t, err)
	start := time.Now()
	err = g.Do(t.Context(), "report", func(context.Context) error { t.Error("ran"); return nil })
	require.Less(t, time.Since(start), settled, "it does not wait")
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, guard.ErrStore)
	require.Equal(t, "single", failed.Backend)
	require.Equal(t, driver.OpAcquire, failed.Op)
	require.Equal(t, "report", failed.Key)
	require.ErrorContains(t, err, `single: acquire "report" at `+failed.Addr)
	if err := g.Close(t.Context()); failed.Kind == driver.KindWrongType {
		require.NoError(t, err, "the key holds no lease")
	} else {
		require.ErrorContains(t, err, "1 claim was not released", "nobody knows whether the store has it")
	}
	return failed
}

func TestDo_namesAServerThatIsAbsent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	failed := refusal(t, client(t, addr))
	require.Equal(t, driver.KindConnection, failed.Kind)
	require.Equal(t, addr, failed.Addr)
}

func TestDo_saysThatThePasswordIsWrong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err())
	for name, password := range map[string]string{"wrong": "guess", "missing": ""} {
		t.Run(name, func(t *testing.T) {
			failed := refusal(t, client(t, server.Addr(), func(o *redis.Options) { o.Password = password }), guard.WithWait(time.Hour))
			require.Equal(t, driver.KindAuth, failed.Kind)
			require.NotContains(t, failed.Error(), "guess")
		})
	}
}

func TestDo_saysThatTheUserMayNot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	for name, rule := range map[string]string{"no scripts": "-evalsha", "no such key": "~other:*"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "limited", "reset", "on", ">pw", "~onerun:*", "+@all").Err())
			if strings.HasPrefix(rule, "~") {
				require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "limited", "resetkeys").Err())
			}
			require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "limited", rule).Err())
			failed := refusal(t, client(t, server.Addr(), func(o *redis.Options) { o.Username, o.Password = "limited", "pw" }))
			require.Equal(t, driver.KindAuth, failed.Kind)
		})
	}
}

func TestDo_saysThatTheKeyHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	lease := leaseKey(t, rdb, "report")
	require.NoError(t, rdb.HSet(t.Context(), lease, "field", "value").Err())
	failed := refusal(t, rdb, guard.WithWait(time.Hour))
	require.Equal(t, driver.KindWrongType, failed.Kind)
	require.Equal(t, "value", rdb.HGet(t.Context(), lease, "field").Val(), "what is not ours stays")
}

func TestDo_treatsAForeignStringAsBusy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	lease := leaseKey(t, rdb, "report")
	require.NoError(t, rdb.Set(t.Context(), lease, "somebody's", 0).Err())
	g := newGuard(t, rdb)
	var busy *guard.BusyError
	require.ErrorAs(t, g.Do(t.Context(), "report", nothing), &busy)
	require.Negative(t, busy.Left, "it never ends")
	require.Equal(t, "somebody's", rdb.Get(t.Context(), lease).Val())
}

func TestDo_leavesInTheServerWhatIsTooLargeToBeOurs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	lease := leaseKey(t, rdb, "report")
	g := newGuard(t, rdb)
	var done *guard.DoneError
	for length, read := range map[int]int{guard.MaxRecord: guard.MaxRecord, guard.MaxRecord + 1: 0} {
		require.NoError(t, rdb.Set(t.Context(), lease, "Did\n"+strings.Repeat("x", length), time.Hour).Err())
		require.ErrorAs(t, g.Do(t.Context(), "report", nothing), &done)
		require.Len(t, done.Record, read)
	}
	for value, label := range map[string]string{
		"Did\nrecord":                                   "", // a marker of old
		"Did 3\nwebrecord":                              "web",
		"Did 99\nrecord":                                "record",
		"D 1e9999 3\nwebrecord":                         "web",
		"Did 1000\n" + strings.Repeat("l", 2000):        strings.Repeat("l", 512),
		"Did" + strings.Repeat("9", 300) + " 3\nrecord": "",
		"Did " + strings.Repeat("9", 200) + "\nrecord":  "record",
	} {
		require.NoError(t, rdb.Set(t.Context(), lease, value, time.Hour).Err())
		require.ErrorAs(t, g.Do(t.Context(), "report", nothing), &done)
		require.Equal(t, label, done.Label, "%.20s", value)
	}
	var busy *guard.BusyError
	require.NoError(t, rdb.Set(t.Context(), lease, "H"+strings.Repeat("i", 1000)+"\n1\n"+strings.Repeat("l", 1000), time.Hour).Err())
	require.ErrorAs(t, g.Do(t.Context(), "report", nothing), &busy)
	require.Len(t, busy.Label, 512)
}

func TestDo_saysThatTheServerIsTooOld(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"no scripts":   "-ERR unknown command `evalsha`, with args beginning with: \r\n",
		"no KEEPTTL":   "-ERR Error running script (call to f_1): @user_script:1: ERR syntax error\r\n",
		"no TIME":      "-ERR Error running script (call to f_1): @user_script:1: Write commands not allowed after non deterministic commands\r\n",
		"no such call": "-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: Unknown Redis command called from Lua script\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			addr := oldServer(t, reply)
			failed := refusal(t, client(t, addr), guard.WithWait(time.Hour))
			require.Equal(t, driver.KindUnsupported, failed.Kind)
			require.Equal(t, addr, failed.Addr)
		})
	}
}

// oldServer answers each command with an error: EVALSHA with reply, others with that they are
// unknown.
func oldServer(t *testing.T, reply string) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerErrors(conn, reply)
		}
	}()
	return listener.Addr().String()
}

// answerErrors reads commands by their lines: the line after "$n" that comes second names the
// command.
func answerErrors(conn net.Conn, reply string) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	for name := ""; lines.Scan(); name = lines.Text() {
		if !strings.HasPrefix(name, "*") { // the line before this one
			continue
		}
		lines.Scan()
		answer := "-ERR unknown command\r\n"
		if strings.EqualFold(lines.Text(), "evalsha") {
			answer = reply
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// leaseKey returns the Redis key of the lease on key, which is free.
func leaseKey(t *testing.T, rdb redis.UniversalClient, key string) string {
	t.Helper()
	store := single.New(rdb)
	claim := driver.Claim{Key: key, ID: "probe", Owner: "probe", TTL: time.Minute}
	_, err := store.TryAcquire(t.Context(), claim)
	require.NoError(t, err)
	keys, err := rdb.Keys(t.Context(), "onerun:*:lease:"+key).Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	_, err = store.Release(t.Context(), claim, driver.After{})
	require.NoError(t, err)
	return keys[0]
}

func nothing(context.Context) error { return nil }
