package backend_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// FuzzForeign writes foreign bytes to the keys of leases and queues. A backend neither takes nor
// changes a foreign lease. If a queue makes no sense, claims are granted nevertheless.
func FuzzForeign(f *testing.F) {
	for _, lease := range []string{
		"", "H", "Hid\n5\nlabel", "Hid\nfive\n", "Hid\n5", "D", "Did\n", "Did 3\nlabrecord", "Did 99999999999999999999\nx", "Kid\n7\n", "Did -1\n", "X\n\n\n",
		"H99999999999999 5 2 mexlabel", "D99999999999999 5 1,1 mlrecord", "H1 2 3 ", "H99999999999999999999999999 9 9 x", "\x00\xff",
	} {
		f.Add(lease, "id", "L99999999999999 locker", "id 99999999999999 w x")
		f.Add(lease, " ", "-1 l", "a b c")
	}
	f.Add("", "x", "L99999999999999999999999999 y", "x 1 x y")
	srv := redistest.Start(f)
	stores := map[string]guard.Locker{}
	rdb := map[string]*redis.Client{}
	for name, open := range backends {
		on := func(o *redis.Options) { o.DB = len(stores) }
		rdb[name] = srv.Client(f, on)
		stores[name] = open(srv.Client(f, on))
	}
	f.Fuzz(func(t *testing.T, lease, id, waiter, notified string) {
		for name, store := range stores {
			require.NoError(t, rdb[name].FlushDB(t.Context()).Err())
			meetForeign(t, name, store, rdb[name], lease)
			require.NoError(t, rdb[name].FlushDB(t.Context()).Err())
			meetForeignQueue(t, name, store, rdb[name], id, waiter, notified)
		}
	})
}

func meetForeign(t *testing.T, name string, store guard.Locker, rdb *redis.Client, lease string) {
	t.Helper()
	at := lockKeys[name]("key")
	content := func() string { return rdb.Get(t.Context(), at).Val() }
	if name == "reentrant" {
		content = func() string { return rdb.HGet(t.Context(), at, "onerun:THEIRS").Val() }
		require.NoError(t, rdb.HSet(t.Context(), at, "onerun:THEIRS", lease).Err())
	} else {
		require.NoError(t, rdb.Set(t.Context(), at, lease, 0).Err())
	}
	mine := driver.Claim{Key: "key", ID: "MINE", Owner: "MINE", TTL: time.Hour, Fence: 1 << 60}
	for _, ask := range []func() (bool, error){
		func() (bool, error) { return store.Renew(t.Context(), mine) },
		func() (bool, error) { return store.Release(t.Context(), mine, driver.After{}) },
		func() (bool, error) {
			return store.Release(t.Context(), mine, driver.After{Keep: time.Hour, Done: true})
		},
	} {
		held, err := ask()
		require.NoError(t, err)
		require.False(t, held)
		require.Equal(t, lease, content())
	}
	mine.Fence = 0
	grant, err := store.TryAcquire(t.Context(), mine)
	require.NoError(t, err)
	if name == "reentrant" && grant.State == driver.Granted { // the hold has ended
		require.Empty(t, content())
		return
	}
	require.NotEqual(t, driver.Granted, grant.State)
	require.Equal(t, lease, content())
}

func meetForeignQueue(t *testing.T, name string, store guard.Locker, rdb *redis.Client, id, waiter, notified string) {
	t.Helper()
	counter := counterKeys[name]("key")
	prefix := strings.TrimSuffix(counter, "fence")
	queue, waiters := prefix+"queue:key", prefix+"waiters:key"
	require.NoError(t, rdb.ZAdd(t.Context(), queue, redis.Z{Score: 1, Member: id}).Err())
	require.NoError(t, rdb.HSet(t.Context(), waiters, id, waiter, " notified", notified).Err())
	mine := driver.Claim{Key: "key", ID: "MINE", Owner: "MINE", TTL: time.Hour, Queue: driver.Queued}
	grant, err := store.TryAcquire(t.Context(), mine)
	require.NoError(t, err)
	if grant.State != driver.Granted { // the waiter ahead was notified, and may still ask
		require.Equal(t, driver.Busy, grant.State)
		require.Equal(t, driver.OtherNotified, grant.Reason)
		require.LessOrEqual(t, grant.Left, driver.NotifyGrace)
		require.NoError(t, rdb.HDel(t.Context(), waiters, id).Err())
		grant, err = store.TryAcquire(t.Context(), mine)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, grant.State)
	}
	held, err := store.Release(t.Context(), mine, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
}

// FuzzReplies has a server answer scripts with arbitrary replies. The result is an error, or a
// grant that makes sense.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("\x00\x01"))
	f.Add([]byte("\x02\x03\x00\x00\x00\x05\x01\x02ab\x01\x01c"))
	f.Add([]byte("\x02\x05\x00\x02\x00\x09\x01\x03abc\x00\x01\x01\x01l"))
	f.Add([]byte("\x02\x02\x00\x07\x02\x04\x00\x00\x00\x01\x01\x01a\x01\x01b"))
	f.Add([]byte("\x03\x04oops\x04\x02\x00"))
	var reply atomic.Pointer[string]
	srv, err := server.NewServer("127.0.0.1:0")
	require.NoError(f, err)
	f.Cleanup(srv.Close)
	for _, command := range []string{"EVALSHA", "EVAL"} {
		require.NoError(f, srv.Register(command, func(c *server.Peer, _ string, _ []string) { c.WriteRaw(*reply.Load()) }))
	}
	one := ":1\r\n" // to the probe of what can share a script
	reply.Store(&one)
	lockers := map[string]*batcher{}
	for name, open := range backends {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr().String(), Protocol: 2, DisableIdentity: true})
		f.Cleanup(func() { _ = rdb.Close() })
		lockers[name] = batcherOn(rdb, open)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		from := &source{input}
		text := from.reply(0)
		reply.Store(&text)
		for _, l := range lockers {
			answers, _ := l.send(t, take("a", "id"), take("b", "id"), give("c", "id"))
			alone := answer{}
			alone.grant, alone.err = l.locker.TryAcquire(t.Context(), claim("d", "id"))
			for _, a := range append(answers, alone) {
				checkAnswer(t, a)
			}
			_, err := l.locker.Release(t.Context(), claim("d", "id"), driver.After{})
			checkAnswer(t, answer{err: err})
			_, err = l.locker.Renew(t.Context(), claim("d", "id"))
			checkAnswer(t, answer{err: err})
		}
	})
}

func checkAnswer(t *testing.T, a answer) {
	t.Helper()
	if a.err != nil {
		require.ErrorIs(t, a.err, guard.ErrStore)
		require.NotEmpty(t, a.kind(t))
		return
	}
	require.LessOrEqual(t, a.grant.State, driver.Done)
	if a.grant.State == driver.Granted {
		require.NotZero(t, a.grant.Fence)
	}
}

// reply returns an answer of Redis, of any shape.
func (s *source) reply(depth int) string {
	switch kind := s.below(6); {
	case kind == 0:
		return fmt.Sprintf(":%d\r\n", s.below(8))
	case kind == 1:
		text := s.text()
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	case kind == 2 && depth < 3:
		n := s.below(8)
		all := fmt.Sprintf("*%d\r\n", n)
		for range n {
			all += s.reply(depth + 1)
		}
		return all
	case kind == 3:
		return "-" + strings.NewReplacer("\r", " ", "\n", " ").Replace(s.text()) + "\r\n"
	case kind == 4:
		return "$-1\r\n"
	default:
		return fmt.Sprintf(":%d\r\n", int64(s.next())<<56|int64(s.next())<<28|int64(s.next())|-int64(s.below(2)))
	}
}
