package faults_test

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Faults of what the servers keep.
var keyRows = []row{
	{number: 10, name: "key deleted under the holder", backends: everyone, ci: []string{"reentrant"}, window: true, forgets: true, run: goneKey(deleted), shows: notHeld},
	{number: 11, name: "FLUSHALL", backends: everyone, ci: []string{"redlock"}, window: true, forgets: true, run: goneKey(flushed), shows: notHeld},
	{number: 12, name: "key overwritten with another owner's value", backends: everyone, window: true, forgets: true, run: overwrittenKey, shows: notHeld},
	{number: 13, name: "scripts flushed", backends: everyone, ci: []string{"single"}, beliefs: 6, run: flushedScripts},
	{number: 13, name: "a server that never had the scripts", backends: everyone, run: newServer},
}

var notHeld = map[string]string{"": `^onerun.lease.losses\{onerun.loss.reason=not_held`}

// leaseKeys finds the keys that stand for the lease on a name: those with a TTL whose names end
// with it, or have it in braces.
func leaseKeys(s *scene, rdb *redis.Client, name string) (found []string) {
	keys, err := rdb.Keys(s.t.Context(), "*").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		if key == name || strings.HasSuffix(key, ":"+name) || strings.HasSuffix(key, "{"+name+"}") {
			found = append(found, key)
		}
	}
	return found
}

// leaseKey is the key that stands for the lease on a name. RedLock answers when most of its nodes
// have granted, so the others may get it a moment later.
func leaseKey(s *scene, rdb *redis.Client, name string) string {
	var found []string
	require.Eventually(s.t, func() bool { found = leaseKeys(s, rdb, name); return len(found) > 0 }, calmLimit, time.Millisecond, "the server keeps the lease")
	require.Len(s.t, found, 1)
	return found[0]
}

func deleted(s *scene, rdb *redis.Client, key string) {
	n, err := rdb.Del(s.t.Context(), key).Result()
	require.NoError(s.t, err)
	s.proven(n == 1, "DEL has deleted %q", key)
}

func flushed(s *scene, rdb *redis.Client, key string) {
	require.EqualValues(s.t, 1, rdb.Exists(s.t.Context(), key).Val())
	require.NoError(s.t, rdb.FlushAll(s.t.Context()).Err())
	s.proven(true, "FLUSHALL")
}

// goneKey makes the lease on "c" go while one holds it and another waits for it.
func goneKey(fault func(s *scene, rdb *redis.Client, key string)) func(s *scene) {
	return func(s *scene) {
		w, other := s.warm()
		stale := w.fence("hold c")
		require.Equal(s.t, "true", w.ask("write c"))
		admin := s.admin()
		keys := make([]string, len(admin))
		for i, rdb := range admin {
			keys[i] = leaseKey(s, rdb, "c")
		}
		for i, rdb := range admin {
			fault(s, rdb, keys[i])
		}
		begun := time.Now()
		fence := other.fence("hold c 5s")
		require.Greater(s.t, fence, stale)
		require.Equal(s.t, "true", other.ask("write c"))
		require.Equal(s.t, "false", w.ask("write c"), "it is fenced, whether it knows or not")
		require.Equal(s.t, "not_held", w.ask("lost c 5s"))
		s.t.Logf("it was known for lost after %v", time.Since(begun))
		said, ok := w.try("release c")
		require.False(s.t, ok)
		require.Contains(s.t, said, "lost")
		require.Equal(s.t, "true", other.ask("valid c"), "I7")
		s.pass(ttl)
		require.Equal(s.t, "true", other.ask("valid c"), "I7: its renewals find it")
		other.ask("release c")
	}
}

// overwrittenKey puts another owner in the place of the holder.
func overwrittenKey(s *scene) {
	w, _ := s.warm()
	w.ask("hold c")
	require.Equal(s.t, "true", w.ask("write c"))
	type put struct {
		rdb *redis.Client
		key string
	}
	var all []put
	for _, rdb := range s.admin() {
		key := leaseKey(s, rdb, "c")
		if s.deployment.backend == "reentrant" {
			require.NoError(s.t, rdb.Del(s.t.Context(), key).Err())
			require.NoError(s.t, rdb.HSet(s.t.Context(), key, "another:1", 1).Err())
			require.NoError(s.t, rdb.PExpire(s.t.Context(), key, time.Minute).Err())
		} else {
			require.NoError(s.t, rdb.Set(s.t.Context(), key, "another's", time.Minute).Err())
		}
		all = append(all, put{rdb, key})
	}
	s.proven(true, "%q was overwritten on %d servers", all[0].key, len(all))
	require.Equal(s.t, "not_held", w.ask("lost c 5s"))
	_, ok := w.try("release c")
	require.False(s.t, ok)
	for _, p := range all {
		left, err := p.rdb.PTTL(context.Background(), p.key).Result()
		require.NoError(s.t, err)
		require.Greater(s.t, left, 30*time.Second, "I7: it was neither deleted nor shortened nor renewed")
		require.NoError(s.t, p.rdb.Del(context.Background(), p.key).Err())
	}
}

func flushedScripts(s *scene) {
	s.loop(2)
	admin := s.admin()
	n := 0
	for begun := time.Now(); time.Since(begun) < 3*ttl; s.pass(20 * time.Millisecond) {
		for _, rdb := range admin {
			require.NoError(s.t, rdb.ScriptFlush(s.t.Context()).Err())
		}
		n++
	}
	var misses int64
	for _, server := range s.deployment.servers {
		misses += server.Calls(s.t)["eval"] + server.Calls(s.t)["script|load"]
	}
	s.proven(misses > 0, "SCRIPT FLUSH %d times, whole scripts sent %d times", n, misses)
}

// newServer restarts each server, one after the other: without scripts, and without keys, of which
// there are none.
func newServer(s *scene) {
	w, other := s.warm()
	for _, server := range s.deployment.servers {
		server.Restart()
		require.Zero(s.t, server.Calls(s.t)["evalsha"])
	}
	s.proven(true, "%d servers were restarted", len(s.deployment.servers))
	w.ask("take c")
	other.ask("take c")
}
